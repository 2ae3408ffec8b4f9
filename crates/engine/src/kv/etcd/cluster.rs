//! The members of an etcd cluster, and requests to whichever of them answers.

use super::super::gone_back::GoneBack;
use super::super::{KvError, Result};
use super::address::Address;
use super::failure::Failed;
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, CompactRequest, CompactResponse, DeleteRangeRequest,
    DeleteRangeResponse, RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse,
};
use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use prost::Message;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// How long the answer to one request may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How long connecting to one member may take.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a member that did not answer is asked after all others.
const ASIDE: Duration = Duration::from_secs(10);
/// How long members are given to say how they are, when no request is answered.
const STATUS_MAX: Duration = Duration::from_millis(300);
/// Pauses between two rounds of all members, the first and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a member may send of one answer before it is told that there is room for more.
const WINDOW_BYTES: u32 = 1 << 20;

/// A method of etcd.
type Method = &'static str;
const RANGE: Method = "/etcdserverpb.KV/Range";
const TXN: Method = "/etcdserverpb.KV/Txn";
const DELETE: Method = "/etcdserverpb.KV/DeleteRange";
const COMPACT: Method = "/etcdserverpb.KV/Compact";
const AUTHENTICATE: Method = "/etcdserverpb.Auth/Authenticate";
const STATUS: Method = "/etcdserverpb.Maintenance/Status";

/// May a request of which it is not known whether it was carried out be sent again?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

/// What a user is known by, for a while. Its number says how many there were.
#[derive(Clone, Default)]
struct Token {
    nth: u64,
    text: Option<MetadataValue<Ascii>>,
}

/// One member.
struct Member {
    name: String,
    /// The way to it, and how many there were before.
    channel: Mutex<(u64, Channel)>,
    /// It has not answered: until then others are asked first.
    aside: Mutex<Option<Instant>>,
}

/// An etcd cluster.
pub struct Cluster {
    pub address: Address,
    /// How long to wait for a cluster that is away.
    pub wait: Duration,
    pub runtime: Handle,
    pub gone_back: GoneBack,
    members: Vec<Member>,
    /// Which member has answered last.
    last: AtomicUsize,
    token: RwLock<Token>,
    /// Held by the one who asks for a new token.
    renewal: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// Connects to nobody yet.
    pub fn new(address: Address, wait: Duration, runtime: Handle) -> Result<Self> {
        let member = |name: &String| {
            let channel = Mutex::new((0, channel(&address, name, &runtime)?));
            Ok(Member { name: name.clone(), channel, aside: Mutex::default() })
        };
        let members = address.members.iter().map(member).collect::<Result<_>>()?;
        let (gone_back, last, token, renewal) = Default::default();
        Ok(Self { address, wait, runtime, gone_back, members, last, token, renewal })
    }

    pub fn shown(&self) -> &str {
        &self.address.shown
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.wait
    }

    /// How long one member is waited for: so that there is time to ask another.
    fn answer_max(&self) -> Duration {
        ANSWER_MAX.min(self.wait / 2)
    }

    pub fn unreachable(&self, cause: &str) -> KvError {
        KvError::Unreachable { store: self.shown().to_owned(), cause: cause.into() }
    }

    /// What lies in a range.
    pub async fn range(
        &self,
        range: &RangeRequest,
        deadline: Instant,
    ) -> Result<RangeResponse, Failed> {
        self.ask(RANGE, range, Again::Yes, deadline).await
    }

    /// A transaction that writes. It is sent once; [`Failed::Unsure`] says that nobody knows what it did.
    pub async fn write(&self, txn: &TxnRequest, deadline: Instant) -> Result<TxnResponse, Failed> {
        self.ask(TXN, txn, Again::No, deadline).await
    }

    /// Removes a key; that may be done where etcd takes no more.
    pub async fn delete(
        &self,
        delete: &DeleteRangeRequest,
        deadline: Instant,
    ) -> Result<DeleteRangeResponse, Failed> {
        self.ask(DELETE, delete, Again::No, deadline).await
    }

    /// Forgets what was before a revision.
    pub async fn compact(&self, revision: i64) -> Result<CompactResponse, Failed> {
        self.ask(COMPACT, &CompactRequest { revision }, Again::No, self.deadline()).await
    }

    /// The version of a member that answers.
    pub async fn version(&self, deadline: Instant) -> Result<String, Failed> {
        let status: StatusResponse =
            self.ask(STATUS, &StatusRequest {}, Again::Yes, deadline).await?;
        Ok(status.version)
    }

    /// An error in our words, of a request that has done nothing.
    pub async fn error(&self, failed: Failed) -> KvError {
        let (Failed::NotDone(cause) | Failed::Unsure(cause)) = &failed else {
            return failed.into_error(self.shown());
        };
        if self.has_no_leader().await {
            return self.unreachable(
                "its members that answer have no leader: most of the others are away or cut off",
            );
        }
        // A member that misses our certificate just ends the connection.
        match self.address.encryption.as_ref().is_some_and(|encryption| !encryption.has_own()) {
            true => self.unreachable(&format!(
                "{cause}; if its members ask for a certificate, name cert and key in --meta"
            )),
            false => failed.into_error(self.shown()),
        }
    }

    /// True if members answer, and none of them knows who leads them.
    async fn has_no_leader(&self) -> bool {
        let all = join_all((0..self.members.len()).map(|nth| {
            // Who answers this need not be able to do anything else.
            let channel = self.members[nth].channel.lock().1.clone();
            self.send::<_, StatusResponse>(
                nth,
                channel,
                STATUS,
                &StatusRequest {},
                None,
                STATUS_MAX,
            )
        }));
        let said: Vec<_> = all.await.into_iter().flatten().collect();
        !said.is_empty() && said.iter().all(|status| status.leader == 0)
    }

    /// Asks one member after the other, until the deadline.
    async fn ask<Q, A>(
        &self,
        method: Method,
        request: &Q,
        again: Again,
        deadline: Instant,
    ) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut pause = PAUSE;
        loop {
            let failed = match self.ask_all(method, request, again, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let helps = match &failed {
                Failed::NotDone(_) | Failed::Behind(_) | Failed::Token(_) => true,
                Failed::Unsure(_) => again == Again::Yes,
                _ => false,
            };
            if !helps || Instant::now() + pause >= deadline {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks each member until one answers.
    async fn ask_all<Q, A>(
        &self,
        method: Method,
        request: &Q,
        again: Again,
        deadline: Instant,
    ) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut met = Failed::NotDone("there was no time to ask".into());
        for nth in self.order() {
            // A token that nobody knows any more is renewed once for each member.
            for is_renewed in [false, true] {
                let left =
                    deadline.saturating_duration_since(Instant::now()).min(self.answer_max());
                if left.is_zero() {
                    return Err(met);
                }
                let token = match self.token(deadline).await {
                    Ok(token) => token,
                    // Whatever became of asking who we are, the request itself was not sent.
                    Err(Failed::Unsure(cause)) => return Err(Failed::NotDone(cause)),
                    Err(failed) => return Err(failed),
                };
                let answer = self.ask_member(nth, method, request, token.text.as_ref(), left).await;
                met = match answer {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                if !matches!(met, Failed::Token(_)) || is_renewed {
                    break;
                }
                self.renew(token.nth, deadline).await?;
            }
            match &met {
                Failed::NotDone(_) | Failed::Behind(_) | Failed::Tls(_) => {}
                Failed::Unsure(_) if again == Again::Yes => {}
                _ => break,
            }
        }
        Err(met)
    }

    /// The members in the order in which they are asked: the one that has answered last comes first, and those that did
    /// not answer a moment ago come last.
    fn order(&self) -> Vec<usize> {
        let (count, last) = (self.members.len(), self.last.load(Ordering::Relaxed));
        let all = (0..count).map(|nth| (last + nth) % count);
        let now = Instant::now();
        let is_aside =
            |nth: &usize| self.members[*nth].aside.lock().is_some_and(|until| now < until);
        let (aside, good): (Vec<_>, Vec<_>) = all.partition(is_aside);
        good.into_iter().chain(aside).collect()
    }

    async fn ask_member<Q, A>(
        &self,
        nth: usize,
        method: Method,
        request: &Q,
        token: Option<&MetadataValue<Ascii>>,
        limit: Duration,
    ) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let member = &self.members[nth];
        let (which, channel) = member.channel.lock().clone();
        let failed = match self.send(nth, channel, method, request, token, limit).await {
            Ok(answer) => {
                self.last.store(nth, Ordering::Relaxed);
                *member.aside.lock() = None;
                return Ok(answer);
            }
            Err(failed) => failed,
        };
        if matches!(failed, Failed::NotDone(_) | Failed::Unsure(_) | Failed::Tls(_)) {
            tracing::debug!("{}: {failed:?}", member.name);
            *member.aside.lock() = Some(Instant::now() + ASIDE);
            // What is silent may be a connection to a machine that is gone: the next request makes a new one, with the
            // certificates as they are then.
            self.forget_connection(member, which);
        }
        Err(failed)
    }

    /// Sends a request to one member, and waits for the answer.
    async fn send<Q, A>(
        &self,
        nth: usize,
        channel: Channel,
        method: Method,
        request: &Q,
        token: Option<&MetadataValue<Ascii>>,
        limit: Duration,
    ) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut request = tonic::Request::new(request.clone());
        request.set_timeout(limit);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token.clone());
        }
        let mut grpc = Grpc::new(channel)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let asked = async {
            grpc.ready().await.map_err(|e| Failed::NotDone(e.to_string()))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(method), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| Failed::from_status(&status))
        };
        timeout(limit, asked).await.unwrap_or_else(|_| {
            let (name, ms) = (&self.members[nth].name, limit.as_millis());
            Err(Failed::Unsure(format!("no answer from {name} in {ms} ms")))
        })
    }

    /// Makes a new way to a member, unless another task has done so.
    fn forget_connection(&self, member: &Member, which: u64) {
        let mut place = member.channel.lock();
        if place.0 != which {
            return;
        }
        match channel(&self.address, &member.name, &self.runtime) {
            Ok(fresh) => *place = (which + 1, fresh),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// The token as it is now, the first of all if there is none yet; without a user none is needed.
    async fn token(&self, deadline: Instant) -> Result<Token, Failed> {
        let token = self.token.read().clone();
        if token.text.is_some() || self.address.user.is_none() {
            return Ok(token);
        }
        self.renew(token.nth, deadline).await?;
        Ok(self.token.read().clone())
    }

    /// Asks for a new token, unless another task has done so since the one with this number. Meanwhile the old one stays:
    /// who has it is told so, and waits here.
    async fn renew(&self, nth: u64, deadline: Instant) -> Result<(), Failed> {
        let Some(user) = &self.address.user else {
            return Err(Failed::Refused {
                cause: "etcd asks who we are".into(),
                next: "give --meta with a user: etcd://USER:PASSWORD@HOST/NAME".into(),
            });
        };
        let _one = self.renewal.lock().await;
        if self.token.read().nth != nth {
            return Ok(());
        }
        let request =
            AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        let mut met = Failed::NotDone("there was no time to ask".into());
        for member in self.order() {
            let left = deadline.saturating_duration_since(Instant::now()).min(self.answer_max());
            if left.is_zero() {
                break;
            }
            let answer = self.ask_member(member, AUTHENTICATE, &request, None, left).await;
            match answer
                .map(|answer: AuthenticateResponse| answer.token.parse::<MetadataValue<Ascii>>())
            {
                Ok(Ok(mut text)) => {
                    text.set_sensitive(true);
                    *self.token.write() = Token { nth: nth + 1, text: Some(text) };
                    return Ok(());
                }
                Ok(Err(_)) => met = Failed::NotDone("its token cannot be sent back".into()),
                Err(failed @ (Failed::NotDone(_) | Failed::Unsure(_) | Failed::Tls(_))) => {
                    met = failed;
                }
                Err(failed) => return Err(failed),
            }
        }
        Err(match met {
            Failed::Unsure(cause) => Failed::NotDone(cause),
            other => other,
        })
    }
}

/// A way to a member, on which the first request makes a connection.
fn channel(address: &Address, member: &str, runtime: &Handle) -> Result<Channel> {
    let wrong = |cause: String| KvError::Refused {
        store: address.shown.clone(),
        cause,
        next: "correct --meta".into(),
    };
    let scheme = if address.encryption.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
        .map_err(|e| wrong(format!("{member}: {e}")))?
        .connect_timeout(CONNECT_MAX)
        // A request without an answer ends its connection; members do not like to be asked for nothing.
        .keep_alive_while_idle(false)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES)
        .tcp_nodelay(true);
    if let Some(encryption) = &address.encryption {
        let config = encryption.config().map_err(wrong)?;
        endpoint = endpoint.tls_config(config).map_err(|e| wrong(e.to_string()))?;
    }
    // Its task is to run on our threads.
    let _here = runtime.enter();
    Ok(endpoint.connect_lazy())
}
