//! What the metadata server of the tests looks at before it does what it is asked for.

use super::FakeState;
use strake_types::{ErrorKind, Result};
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaRequest};

impl FakeState {
    /// As the server does what a session asks for, if there is one.
    pub(super) fn answer(
        &mut self,
        request: &MetaRequest,
        op: MetaOp,
        line: &str,
    ) -> Result<MetaAnswer> {
        self.injected(line)?;
        let is_open = matches!(op, MetaOp::OpenSession(_));
        let known = self.sessions.get(&request.session).copied();
        if !is_open && known != Some(request.incarnation) {
            return Err(ErrorKind::NoSession.into());
        }
        self.incarnation = request.incarnation;
        self.given_up.extend(&request.given_up);
        if let Some(closed) = request.closed.clone() {
            self.meta(MetaOp::RenewSession(closed), false)?;
        }
        // As the real server does: an open counts once in each incarnation.
        let within = match op {
            MetaOp::Open(_) => request.incarnation,
            _ => 0,
        };
        let number = (request.session, within, request.seq);
        let repeated = request.seq != 0 && !self.seen_seqs.insert(number);
        if repeated {
            self.log.push(format!("repeated {}", request.seq));
        }
        let answer = self.meta(op, repeated)?;
        self.lost(line)?;
        Ok(answer)
    }
}
