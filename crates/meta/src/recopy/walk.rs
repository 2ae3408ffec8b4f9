//! One job: a walk through all files below a directory.
//!
//! In a volume of several shares each has a walk of its own through all of the names, wherever they are, and
//! copies the files of its share. A directory hands down the number of copies before a walk looks at its first
//! entry, whose share it ever is in: what is made there later is ready.
//!
//! How far it is lies in the store after every page of a directory, so that a restart goes on. A record
//! that is lost or older costs nothing but the tally: files that are ready are passed over.
//!
//! Files that cannot be copied now, and directories that cannot hand down so many copies, are tried again
//! when the walk is over, with pauses; and walks are
//! repeated until one, but not the first, finds nothing to do, because a directory may be moved out of
//! what is still to be gone through. One that is moved past two walks in a row is missed.

use super::ahead::{Ahead, Amount, Counter, bytes_of};
use super::hand_down::HandDown;
use super::pace::{Pace, Wish};
use super::pages::{Found, path_of};
use super::work::{self, Outcome, Wanted};
use crate::contents::layout_of;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys;
use crate::layout;
use crate::recopies::UnderWay;
use crate::records::{self, Inode, Place, Recopying};
use crate::txn::mutate;
use crate::view::Tx;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_types::{Error, Ino, Result, VolumeId};
use strake_wire::message::recopies::{
    RecopyFile, RecopyLeft, RecopyOrder, RecopyProgress, RecopyTally,
};

/// Files that wait that are remembered; all are counted.
pub(super) const LEFT_MAX: usize = 200;
/// The pause before files that wait are tried again; it doubles each time, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long files are tried again of which none gets ready.
pub(super) const PATIENCE_MS: u64 = 3_600_000;
/// Why a job has failed of which nothing is known to be left.
const NOT_FINISHED: &str = "not all files were looked at once more";

/// What is told of a job, in a share.
pub(super) struct Shown {
    job: u64,
    share: u32,
    state: Mutex<State>,
    under_way: Mutex<BTreeMap<Ino, Busy>>,
}

/// A file that is under way.
struct Busy {
    path: String,
    file: Arc<UnderWay>,
    /// What of it was ahead.
    amount: Amount,
}

#[derive(Default)]
struct State {
    tally: RecopyTally,
    /// Files that are as they were.
    left: BTreeMap<Ino, (RecopyLeft, Amount)>,
    /// How many more there are, as far as this walk has met them.
    more: Amount,
    ahead: Ahead,
    ended: bool,
    trouble: String,
}

impl State {
    /// The walk ends where it is: what it was to meet again waits as well.
    fn leave_rest(&mut self) {
        self.more.add(self.ahead.rest());
        self.ahead.begin_anew(Amount::default());
        // Names were moved meanwhile: what it has not come to may be more than was counted.
        if self.more.files == 0 && self.trouble.is_empty() {
            self.trouble = NOT_FINISHED.to_owned();
        }
    }
}

impl Shown {
    /// Nothing is known of it yet.
    pub fn of(order: &RecopyOrder) -> Self {
        let RecopyOrder { job, volume: share, .. } = *order;
        Self { job, share, state: Mutex::default(), under_way: Mutex::default() }
    }

    /// What is told now.
    pub fn progress(&self) -> RecopyProgress {
        let under_way = self.under_way.lock();
        let file = |busy: &Busy| {
            let (copied, bytes) = busy.file.progress();
            RecopyFile { path: busy.path.clone(), copied, bytes }
        };
        let copied = |busy: &Busy| busy.file.progress().0.min(busy.amount.bytes);
        let state = self.state.lock();
        let mut waiting = state.more;
        state.left.values().for_each(|(_, amount)| waiting.add(*amount));
        RecopyProgress {
            job: self.job,
            tally: state.tally,
            under_way: under_way.values().map(file).collect(),
            left: state.left.len() as u64 + state.more.files,
            waiting: state.left.values().map(|(left, _)| left.clone()).collect(),
            ended: state.ended,
            trouble: state.trouble.clone(),
            volume: self.share,
            ahead: Some(state.ahead.told(waiting, under_way.values().map(copied).sum())),
            directories: waiting.directories,
        }
    }

    /// A file is ready, and so many bytes were copied for that.
    fn note_done(&self, ino: Ino, bytes: u64) {
        let mut state = self.state.lock();
        state.tally.files += 1;
        state.tally.bytes += bytes;
        state.left.remove(&ino);
    }

    /// Nothing is to be done for a file.
    fn note_nothing(&self, ino: Ino) {
        self.state.lock().left.remove(&ino);
    }

    fn note_left(&self, ino: Ino, left: RecopyLeft, amount: Amount) {
        let mut state = self.state.lock();
        if state.left.len() < LEFT_MAX || state.left.contains_key(&ino) {
            state.left.insert(ino, (left, amount));
        } else {
            state.more.add(amount);
        }
    }

    /// A file is under way.
    fn note_begun(&self, ino: Ino, busy: Busy) {
        self.under_way.lock().insert(ino, busy);
    }

    /// It is not any more. One that waited is counted among those.
    fn note_met(&self, ino: Ino) {
        let Some(busy) = self.under_way.lock().remove(&ino) else { return };
        let mut state = self.state.lock();
        if !state.left.contains_key(&ino) {
            state.ahead.meet(busy.amount);
        }
    }
}

/// What has become of a file that was met.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    /// It has got ready.
    Ready,
    /// Nothing is to be done for it, or the job ends.
    Nothing,
    /// It is left as it was.
    Left,
}

/// Where a walk is.
struct Course {
    /// See [`Recopying`].
    stack: Vec<Place>,
    /// Files that have got ready since it began, and one more in the first walk.
    done: u64,
    /// It is the first one since the server started, or after one that left nothing: it is got on with while it goes on.
    first: bool,
    /// Counts what the first walk since the server started has before it.
    counter: Option<Counter>,
    /// When something was got on with, in milliseconds.
    ready_ms: u64,
    /// When that was, or a page of any walk had nothing that waits: the walk gets on, however long it takes.
    moved_ms: u64,
    /// Since when every step fails.
    failing_ms: Option<u64>,
    pause: Duration,
}

impl Course {
    /// Something was got on with.
    fn note_ready(&mut self, now_ms: u64) {
        (self.ready_ms, self.moved_ms) = (now_ms, now_ms);
    }
}

/// A job.
pub(super) struct Walk {
    /// What all operations share.
    pub core: Arc<Core>,
    /// Which files, and how many copies.
    pub order: RecopyOrder,
    /// How fast, and how long.
    pub pace: Pace,
    /// What is told of it.
    pub shown: Arc<Shown>,
    /// Files under way at once.
    pub files_max: usize,
}

impl Walk {
    /// Carries it out, and waits until nobody wants to hear of it any more.
    pub async fn run(self) {
        let id = VolumeId(self.order.volume);
        let volume = loop {
            match self.core.volume(id).await {
                Ok(volume) => break volume,
                Err(_) if self.pace.is_over() => return,
                Err(error) => self.trouble(&error).await,
            }
        };
        // What an earlier job has begun comes to its end first.
        let _turn = volume.recopies.turn.lock().await;
        if let Some(course) = self.carry_out().await {
            self.linger(course).await;
        }
        if self.pace.wish() == Wish::GiveUp
            && let Err(error) = self.forget().await
        {
            tracing::warn!("volume {id}: what job {} noted stays: {error}", self.order.job);
        }
    }

    /// As long as the job lasts, because other shares are not ready yet, what is left may get ready.
    async fn linger(&self, mut course: Course) {
        loop {
            self.pace.rest(PAUSE_MAX).await;
            if self.pace.is_over() {
                return;
            }
            if let Err(error) = self.try_again(&mut course).await {
                tracing::debug!("job {}: {error}", self.order.job);
            }
        }
    }

    async fn trouble(&self, error: &Error) {
        tracing::debug!("job {}: {error}", self.order.job);
        self.shown.state.lock().trouble = error.to_string();
        self.pace.rest(PAUSE).await;
    }

    /// Where it has ended, if nothing else ended it.
    async fn carry_out(&self) -> Option<Course> {
        let mut course = loop {
            match self.resume().await {
                Ok(course) => break course,
                Err(_) if self.pace.is_over() => return None,
                Err(error) => self.trouble(&error).await,
            }
        };
        while self.pace.wait(0, None).await {
            let now_ms = self.core.monotonic_ms();
            if self.pace.take_paused() {
                course.note_ready(now_ms);
                course.failing_ms = None;
            }
            let ended = match self.step(&mut course).await {
                Ok(ended) => {
                    // Where it ends, that may be why.
                    if !ended {
                        self.shown.state.lock().trouble.clear();
                    }
                    course.failing_ms = None;
                    ended
                }
                Err(error) => {
                    self.trouble(&error).await;
                    // Not from its begin: a step may have gone on for hours before it failed.
                    let now_ms = self.core.monotonic_ms();
                    self.is_long_ago(*course.failing_ms.get_or_insert(now_ms))
                }
            };
            if ended && !self.pace.is_over() {
                self.shown.state.lock().ended = true;
                let RecopyTally { files, bytes, .. } = self.shown.progress().tally;
                let job = self.order.job;
                tracing::info!("job {job} has ended: {files} files, {bytes} bytes were copied");
                return Some(course);
            }
        }
        None
    }

    fn is_long_ago(&self, since_ms: u64) -> bool {
        self.core.monotonic_ms().saturating_sub(since_ms) > PATIENCE_MS
    }

    /// Where it was, if it had begun.
    async fn resume(&self) -> Result<Course> {
        let ctx = self.ctx().await?;
        let key = keys::recopying(ctx.volume.id);
        let found: Option<Recopying> = Tx::reader(&ctx).get(&key).await?;
        let known = found.filter(|found| found.job == self.order.job).unwrap_or_default();
        self.shown.state.lock().tally = known.tally;
        let now_ms = self.core.monotonic_ms();
        let mut course = Course {
            // Another walk follows the first one, whatever that finds: what leads to files may have been moved past it. And what
            // a part of a walk has done and left before a restart is not known any more.
            done: 1,
            stack: known.stack,
            first: true,
            counter: None,
            ready_ms: now_ms,
            moved_ms: now_ms,
            failing_ms: None,
            pause: PAUSE,
        };
        if course.stack.is_empty() {
            course.stack = self.whole();
        }
        course.counter = Some(Counter::from(&course.stack, self.order.copies));
        Ok(course)
    }

    /// Where a walk begins.
    fn whole(&self) -> Vec<Place> {
        vec![Place { dir: self.order.ino, after: 0 }]
    }

    /// Another walk, which meets again what is not remembered by name.
    fn begin(&self, course: &mut Course) {
        course.stack = self.whole();
        let mut state = self.shown.state.lock();
        let again = std::mem::take(&mut state.more);
        state.ahead.begin_anew(again);
    }

    async fn ctx(&self) -> Result<Ctx> {
        let volume = self.core.volume(VolumeId(self.order.volume)).await?;
        Ok(Ctx::own(&self.core, &volume))
    }

    async fn store(&self, ctx: &Ctx, course: &Course) -> Result<()> {
        let tally = self.shown.state.lock().tally;
        let record = Recopying { job: self.order.job, stack: course.stack.clone(), tally };
        ctx.volume.put(keys::recopying(ctx.volume.id), records::encode(&record)).await
    }

    async fn forget(&self) -> Result<()> {
        let ctx = self.ctx().await?;
        let key = keys::recopying(VolumeId(self.order.volume));
        ctx.volume.write(vec![(key, None)]).await
    }

    /// A page of a directory, or what is to be done when a walk is over. True: nothing is.
    async fn step(&self, course: &mut Course) -> Result<bool> {
        if let Some(place) = course.stack.last().copied() {
            if !course.first && self.is_long_ago(course.moved_ms) {
                self.shown.state.lock().leave_rest();
                return Ok(true);
            }
            self.page(course, place).await?;
            return Ok(false);
        }
        (course.first, course.counter) = (false, None);
        let (none_left, more) = {
            let mut state = self.shown.state.lock();
            state.ahead.begin_anew(Amount::default());
            (state.left.is_empty(), state.more.files)
        };
        if none_left {
            let nothing = std::mem::take(&mut course.done) == 0;
            self.begin(course);
            course.first = true;
            if nothing {
                self.shown.state.lock().trouble.clear();
            }
            return Ok(nothing);
        }
        if self.is_long_ago(course.ready_ms) {
            // What is left says why.
            self.shown.state.lock().trouble.clear();
            return Ok(true);
        }
        self.pace.rest(course.pause).await;
        course.pause = (course.pause * 2).min(PAUSE_MAX);
        if more > 0 {
            course.done = 0;
            self.begin(course);
            return Ok(false);
        }
        self.try_again(course).await?;
        Ok(false)
    }

    /// What is left, once more.
    async fn try_again(&self, course: &mut Course) -> Result<()> {
        let left: Vec<Ino> = self.shown.state.lock().left.keys().copied().collect();
        if left.is_empty() {
            return Ok(());
        }
        let ctx = self.ctx().await?;
        let files = self.directories_again(&ctx, course, left).await?;
        self.copy(&ctx, course, files).await;
        match self.pace.is_over() {
            true => Ok(()),
            false => self.store(&ctx, course).await,
        }
    }

    /// Directories that are left, once more; the files. What was made in one meanwhile another walk meets, so none is when there
    /// is to be no other.
    async fn directories_again(
        &self,
        ctx: &Ctx,
        course: &mut Course,
        left: Vec<Ino>,
    ) -> Result<Vec<Ino>> {
        let ended = self.shown.state.lock().ended;
        let mut files = Vec::new();
        for ino in left {
            let inode = Tx::reader(ctx).find_inode(ino).await?;
            let Some(dir) = inode.filter(|inode| inode.is_dir()) else {
                files.push(ino);
                continue;
            };
            if !ended && self.hand_down(ctx, &dir).await? {
                course.done += 1;
                course.note_ready(self.core.monotonic_ms());
                course.pause = PAUSE;
            }
        }
        Ok(files)
    }

    async fn page(&self, course: &mut Course, place: Place) -> Result<()> {
        let ctx = self.ctx().await?;
        self.count(&ctx, course.counter.as_mut()).await?;
        let mut found = self.look(&ctx, place).await?;
        let files = std::mem::take(&mut found.files);
        let none_left = self.copy_and_count(&ctx, course, files).await;
        if self.pace.is_over() {
            return Ok(());
        }
        // What is ready is passed over, however long that takes; what waits may have been waited for.
        if none_left {
            course.moved_ms = self.core.monotonic_ms();
        }
        if course.first && none_left {
            course.ready_ms = course.moved_ms;
        }
        course.stack.pop();
        found.push_next(&mut course.stack);
        self.store(&ctx, course).await
    }

    /// What there is at a place.
    async fn look(&self, ctx: &Ctx, place: Place) -> Result<Found> {
        // Its snapshot is given back before anything is asked of others.
        let inode = Tx::reader(ctx).find_inode(Ino(place.dir)).await?;
        if let Some(dir) = inode.as_ref().filter(|inode| inode.is_dir() && place.after == 0) {
            self.hand_down(ctx, dir).await?;
        }
        Found::at(ctx, inode.as_deref(), place.after).await
    }

    /// Another page of what is ahead.
    async fn count(&self, ctx: &Ctx, counter: Option<&mut Counter>) -> Result<()> {
        if let Some(counter) = counter.filter(|counter| !counter.is_done()) {
            let more = counter.page(ctx).await?;
            self.shown.state.lock().ahead.count(more, counter.is_done());
        }
        Ok(())
    }

    /// Copies files, and counts meanwhile what comes after them. True if none is left.
    async fn copy_and_count(&self, ctx: &Ctx, course: &mut Course, files: Vec<Ino>) -> bool {
        let mut counter = course.counter.take();
        let busy = AtomicBool::new(true);
        let copying = async {
            let none_left = self.copy(ctx, course, files).await;
            busy.store(false, Ordering::Release);
            none_left
        };
        let counting = async {
            while busy.load(Ordering::Acquire) && counter.as_ref().is_some_and(|c| !c.is_done()) {
                match self.pace.is_paused() {
                    true => self.pace.rest(PAUSE).await,
                    // The walk itself says what is wrong.
                    false if self.count(ctx, counter.as_mut()).await.is_err() => break,
                    false => tokio::task::yield_now().await,
                }
            }
        };
        let (none_left, ()) = tokio::join!(copying, counting);
        course.counter = counter;
        none_left
    }

    /// New files in a directory get as many copies. False: it is as it was, and waits; a target that is listed there leads no
    /// group of so many.
    async fn hand_down(&self, ctx: &Ctx, dir: &Inode) -> Result<bool> {
        let (ino, copies, known) = (dir.id(), self.order.copies, layout::template_of(dir)?);
        if known.copies != Some(copies) {
            if let Err(error) = layout::with_copies(&known, copies, &ctx.core.map) {
                let (path, reason) = (path_of(ctx, ino).await, error.to_string());
                self.shown.note_left(ino, RecopyLeft { path, reason }, Amount::directory());
                return Ok(false);
            }
            mutate(ctx, &HandDown { dir: ino, copies }).await?;
        }
        self.shown.note_nothing(ino);
        Ok(true)
    }

    /// Copies files. True if none is left.
    async fn copy(&self, ctx: &Ctx, course: &mut Course, files: Vec<Ino>) -> bool {
        let works = files.into_iter().map(|ino| self.file(ctx, ino));
        let met: Vec<Met> = stream::iter(works).buffer_unordered(self.files_max).collect().await;
        let ready = met.iter().filter(|met| **met == Met::Ready).count();
        if ready > 0 {
            course.done += ready as u64;
            course.note_ready(self.core.monotonic_ms());
            course.pause = PAUSE;
        }
        !met.contains(&Met::Left)
    }

    /// One file.
    async fn file(&self, ctx: &Ctx, ino: Ino) -> Met {
        let (amount, outcome) = match self.what_is_ahead(ctx, ino).await {
            Ok(None) => (Amount::default(), Ok((Outcome::Unchanged, 0))),
            Ok(Some(amount)) => (amount, self.attempt(ctx, ino, amount).await),
            // It counts still where it was counted before.
            Err(error) => (Amount::default(), Err(error)),
        };
        let reason = match outcome {
            Ok((Outcome::Done, bytes)) => {
                self.shown.note_done(ino, bytes);
                return Met::Ready;
            }
            _ if self.pace.is_over() => return Met::Nothing,
            Ok((Outcome::Unchanged, _)) => {
                self.shown.note_nothing(ino);
                return Met::Nothing;
            }
            Err(error) if error.kind.is_gone() => {
                self.shown.note_nothing(ino);
                return Met::Nothing;
            }
            Ok((Outcome::Waits(why), _)) => why,
            Err(error) => error.to_string(),
        };
        let path = path_of(ctx, ino).await;
        self.shown.note_left(ino, RecopyLeft { path, reason }, amount);
        Met::Left
    }

    /// What there is to copy of a file; none if it has as many copies as wanted.
    async fn what_is_ahead(&self, ctx: &Ctx, ino: Ino) -> Result<Option<Amount>> {
        self.shown.state.lock().tally.looked += 1;
        let inode = Tx::reader(ctx).find_inode(ino).await?;
        match inode.filter(|inode| inode.is_file()) {
            Some(inode) if layout_of(&inode)?.copies() != self.order.copies => {
                Ok(Some(Amount::file(bytes_of(&inode))))
            }
            _ => Ok(None),
        }
    }

    /// What became of a file, and the bytes copied for it.
    async fn attempt(&self, ctx: &Ctx, ino: Ino, amount: Amount) -> Result<(Outcome, u64)> {
        let nothing = Ok((Outcome::Unchanged, 0));
        if !self.pace.wait(0, None).await {
            return nothing;
        }
        // By another of its names.
        let Some(running) = ctx.volume.recopies.begin(ino) else { return nothing };
        let path = path_of(ctx, ino).await;
        self.shown.note_begun(ino, Busy { path, file: running.file.clone(), amount });
        let wanted = Wanted { ino, copies: self.order.copies, pace: &self.pace };
        let outcome = work::run(ctx, &wanted, &running.file).await;
        self.shown.note_met(ino);
        Ok((outcome?, running.file.progress().0))
    }
}
