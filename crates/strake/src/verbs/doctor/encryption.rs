//! The part of `strake doctor` that looks at certificates: is traffic encrypted, and how long yet.

use super::{ANSWER_SECONDS_MAX, Report};
use crate::cluster::caller_name;
use crate::failure::Failure;
use crate::tls_flags::SOON_DAYS;
use std::time::Duration;
use strake_types::{Error, ErrorKind};
use strake_wire::caller::{CallerKind, CallerOptions, Callers};
use strake_wire::message::manager::{GetMap, ManagerOp, ManagerRequest};
use strake_wire::tls::{Certificate, Tls};
use strake_wire::transport;

/// The name of this phase.
pub const PHASE: &str = "encryption";
const SILENT: &str = "is it a Strake server? Its log may say more";
const MEND: &str = "issue a new one with strake tls issue, and put it in the place of the old";

/// Our own certificate. One that has expired was refused before.
pub fn own(tls: &Tls, report: &mut Report) {
    let shown = tls.files().certificate.display();
    judge(&format!("we are {shown}"), &tls.certificate(), report);
}

/// What a server shows.
pub async fn of(address: &str, tls: Option<&Tls>, report: &mut Report) {
    let Some(tls) = tls else { return of_plain(address, report).await };
    let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
    match tokio::time::timeout(limit, transport::connect(address, Some(tls))).await {
        Ok(Ok(connected)) => {
            if let Some(certificate) = &connected.certificate {
                judge(&format!("{address}: TLS 1.3 with"), certificate, report);
            }
            connected.stream.close();
        }
        Ok(Err(error)) => refused(&error, report),
        Err(_) => report.bad(
            PHASE,
            format!("{address}: no handshake within {ANSWER_SECONDS_MAX} s"),
            SILENT,
        ),
    }
}

/// The same where we have no certificate: one that takes encrypted connections only says so.
async fn of_plain(address: &str, report: &mut Report) {
    let options = CallerOptions {
        name: caller_name("doctor"),
        kind: CallerKind::Command,
        call_timeout_ms: ANSWER_SECONDS_MAX * 1000,
        ..CallerOptions::default()
    };
    let callers = Callers::new(options);
    let request = ManagerRequest { op: Some(ManagerOp::GetMap(GetMap::default())) };
    let answer = callers.manager_at(address).call(request).await;
    callers.close();
    match answer {
        Err(error) if error.kind == ErrorKind::WrongPeer => refused(&error, report),
        Err(error) if matches!(error.kind, ErrorKind::TimedOut | ErrorKind::Unavailable) => {
            report.warn(PHASE, format!("{address}: did not answer"), SILENT);
        }
        // Whatever else it says, it says it in the plain.
        _ => report.ok(
            PHASE,
            format!("{address}: none; whoever reaches it may act as any user (SECURITY.md)"),
        ),
    }
}

fn refused(error: &Error, report: &mut Report) {
    let Failure { cause, next, .. } = Failure::telling(error);
    report.bad(PHASE, cause, next.unwrap_or_else(|| MEND.into()));
}

fn judge(who: &str, certificate: &Certificate, report: &mut Report) {
    let Certificate { name, kind, expires } = certificate;
    let (date, days) = (expires.date(), certificate.days_left());
    let about = format!("{who} {name} ({}), expires on {date}, in {days} days", kind.text());
    match days >= SOON_DAYS {
        true => report.ok(PHASE, about),
        false => report.warn(PHASE, about, MEND),
    }
}
