//! Random messages to and from the manager.

use super::super::{jobs, manager as mgr};
use super::Gen;
use prost::Message;

impl Gen {
    fn target_spec(&mut self) -> mgr::TargetSpec {
        mgr::TargetSpec {
            scrub: self.opt(Self::scrub_word),
            target: self.u32(),
            uuid: self.string(),
            path: self.string(),
            total_bytes: self.u64(),
            free_bytes: self.u64(),
            poisoned: self.string(),
            generation: self.opt(Self::u64),
            silent_ms: self.opt(Self::u64),
            boot: self.u64(),
            hands_over: self.bool(),
            uncounted: self.bool(),
            unwalked: self.bool(),
            displaced: self.u32(),
        }
    }

    fn volume_spec(&mut self) -> mgr::VolumeSpec {
        mgr::VolumeSpec {
            name: self.string(),
            template: self.opt(Self::template),
            inline_bytes_max: self.opt(Self::u32),
            sync_always: self.opt(Self::bool),
            shares: self.opt(Self::u32),
        }
    }

    fn heartbeat(&mut self) -> mgr::Heartbeat {
        mgr::Heartbeat {
            server: self.u32(),
            targets: self.list(Self::target_spec),
            held: self.list(Self::held),
            progress: self.list(Self::progress),
            scrubs: self.list(Self::scrub_progress),
            recopies: self.list(Self::recopy_progress),
            serves: self.list(Self::u32),
            epoch: self.u64(),
            cut_off: self.bool(),
            lease_ms: self.u64(),
            tenure_ms: self.u64(),
            release: self.string(),
            missed: self.list(|g| mgr::Missed {
                group: g.u32(),
                epoch: g.u64(),
                member: g.u32(),
                for_ms: g.u64(),
                silent: g.bool(),
                early: g.bool(),
            }),
            full: self.string(),
            address: self.string(),
            gone_back: self.bool(),
        }
    }

    /// A request with each operation.
    pub fn manager_requests(&mut self) -> Vec<mgr::ManagerRequest> {
        use mgr::ManagerOp::*;
        let ops = vec![
            Join(mgr::Join {
                server: self.u32(),
                cluster: self.string(),
                address: self.string(),
                manager: self.bool(),
                meta: self.bool(),
                targets: self.list(Self::target_spec),
                name: self.string(),
                boot: self.string(),
                store: self.string(),
                shares: self.bool(),
                old_disks: self.bool(),
                life: self.u64(),
            }),
            Heartbeat(self.heartbeat()),
            GetMap(mgr::GetMap {
                known_epoch: self.u64(),
                missed: self.list(Self::u32),
                known: self.opt(Self::map_version),
            }),
            CreateVolume(self.volume_spec()),
            SetVolume(self.volume_spec()),
            DeleteVolume(mgr::VolumeName { name: self.string() }),
            Leave(mgr::Leave { server: self.u32(), life: self.u64() }),
            Resynced(mgr::Resynced {
                group: self.u32(),
                epoch: self.u64(),
                member: self.u32(),
                failed: self.bool(),
                reason: self.string(),
                sent: self.u64(),
                word: self.u64(),
                primary_boot: self.u64(),
                member_boot: self.u64(),
                hangs: self.bool(),
                hands_over: self.bool(),
                vouches: self.u64(),
                silent: self.bool(),
            }),
            PrepareCopies(mgr::PrepareCopies { copies: self.u32(), targets: self.list(Self::u32) }),
            Plan(self.plan()),
            ListJobs(jobs::ListJobs { id: self.u64() }),
            SteerJob(self.steer_job()),
            AddTarget(mgr::AddTarget {
                server: self.u32(),
                spec: self.target_spec(),
                boot: self.string(),
            }),
            Used(mgr::Used { group: self.u32(), target: self.u32() }),
            Fence(mgr::Fence { volume: self.u32(), sessions: self.list(Self::u64) }),
            Stalled(mgr::Stalled { group: self.u32(), epoch: self.u64(), target: self.u32() }),
        ];
        ops.into_iter().map(|op| mgr::ManagerRequest { op: Some(op) }).collect()
    }

    fn map(&mut self) -> mgr::ClusterMap {
        mgr::ClusterMap {
            cluster: self.string(),
            epoch: self.u64(),
            servers: self.list(|g| mgr::Server {
                id: g.u32(),
                address: g.string(),
                manager: g.bool(),
                meta: g.bool(),
                up: g.bool(),
                name: g.string(),
                silent_ms: g.u64(),
                store: g.string(),
                cut_off: g.bool(),
                release: g.opt(Self::string),
                unreached: g.string(),
                full: g.string(),
                rival: g.string(),
                ahead: g.bool(),
            }),
            targets: self.list(|g| mgr::Target {
                id: g.u32(),
                server: g.u32(),
                spec: g.target_spec(),
                up: g.bool(),
                drains: g.bool(),
            }),
            groups: self.list(|g| mgr::Group {
                id: g.u32(),
                epoch: g.u64(),
                members: g.list(Self::u32),
                in_sync: g.list(Self::u32),
                joining: g.list(Self::u32),
                losses: g.u64(),
                leaving: g.list(Self::u32),
                word: g.u64(),
                vouchers: g.list(|g| mgr::Voucher { target: g.u32(), boot: g.u64() }),
                never_used: g.bool(),
                lost_ms: g.u64(),
                hand_over: g.u64(),
                handed_in: g.u64(),
                stands_for: g.u64(),
            }),
            volumes: self.list(Self::volume),
            fenced: self.list(Self::fenced),
            leader: self.u32(),
            next_target: self.u32(),
            missed: self.list(|g| mgr::MissedBy {
                member: g.u32(),
                primary: g.u32(),
                for_ms: g.u64(),
                silent: g.bool(),
                left: g.bool(),
            }),
        }
    }

    fn map_version(&mut self) -> mgr::MapVersion {
        mgr::MapVersion { manager: self.u64(), number: self.u64() }
    }

    fn map_answer(&mut self) -> mgr::MapAnswer {
        let map = self.opt(Self::map).map(|map| mgr::MapAnswer::of(&map)).unwrap_or_default();
        let changes = |g: &mut Self| mgr::MapChanges {
            map: g.map(),
            servers: g.list(Self::u32),
            targets: g.list(Self::u32),
            groups: g.list(Self::u32),
            volumes: g.list(Self::u32),
            fenced: g.list(Self::fenced),
            since: g.u64(),
        };
        let changes = self.opt(changes).map(|changes| changes.encode_to_vec().into());
        mgr::MapAnswer { changes, version: self.opt(Self::map_version), ..map }
    }

    fn fenced(&mut self) -> mgr::Fenced {
        mgr::Fenced { volume: self.u32(), session: self.u64(), epoch: self.u64() }
    }

    fn volume(&mut self) -> mgr::Volume {
        mgr::Volume {
            id: self.u32(),
            spec: self.volume_spec(),
            deleting: self.bool(),
            meta_server: self.u32(),
            owned_since: self.u64(),
            leaving: self.u32(),
            share: self.u32(),
        }
    }

    /// A reply with each answer.
    pub fn manager_replies(&mut self) -> Vec<mgr::ManagerReply> {
        use mgr::ManagerAnswer::*;
        let answers = vec![
            Epoch(self.u64()),
            Joined(mgr::Joined {
                cluster: self.string(),
                server: self.u32(),
                targets: self.list(Self::u32),
                capability_key: self.bytes(),
                lease_ms: self.u64(),
                generations: self.list(Self::u64),
            }),
            Map(self.map_answer()),
            Volume(self.volume()),
            Jobs(self.job_list()),
            Target(self.u32()),
            Leader(mgr::Leader {
                server: self.u32(),
                address: self.string(),
                cut_off: self.string(),
            }),
        ];
        let orders = self.list(Self::order);
        let scrubs = self.list(Self::scrub_order);
        let recopies = self.list(Self::recopy_order);
        let (lead, hears_hangs) = (self.u64(), self.bool());
        let resigns =
            self.list(|g| mgr::Resign { group: g.u32(), epoch: g.u64(), member: g.u32() });
        let doubts = self.list(|g| mgr::Doubt {
            group: g.u32(),
            epoch: g.u64(),
            member: g.u32(),
            primary: g.u32(),
        });
        let reply = |answer| mgr::ManagerReply {
            answer: Some(answer),
            orders: orders.clone(),
            scrubs: scrubs.clone(),
            recopies: recopies.clone(),
            lead,
            hears_hangs,
            resigns: resigns.clone(),
            doubts: doubts.clone(),
        };
        answers.into_iter().map(reply).collect()
    }
}
