//! What a client does. Its requests need no messages: while a write has no answer, everybody whom it
//! may take for the primary can receive it, as often as it likes; afterwards copies are under way still.

use super::ids::Value;
use super::rules::Rules;
use super::state::{Late, Phase, State};

/// A client begins a write.
pub fn invoke(rules: &Rules, state: &mut State, client: usize) -> Option<()> {
    let epoch = state.manager.epoch;
    // Clients that do the same are told apart by nothing but their order.
    let turn = rules.writes[0] != rules.writes[client] || client == 0 || state.clients[0].begun > 0;
    let from = &mut state.clients[client];
    if !turn || from.phase != Phase::Idle || from.begun == rules.writes[client] {
        return None;
    }
    from.phase = Phase::Writing;
    from.seq += 1;
    from.value = value(client, from.begun);
    from.begun += 1;
    from.began = epoch;
    from.before = state.history.answered;
    let pending = state.pending();
    state.history.invoked(&pending);
    Some(())
}

/// What a client's so many-th write writes.
fn value(client: usize, begun: u8) -> Value {
    1 + client as u8 + 2 * begun
}

/// The answer reaches the client.
pub fn answer(rules: &Rules, state: &mut State, client: usize) -> Option<()> {
    if state.clients[client].phase != Phase::Answered {
        return None;
    }
    let pending = state.pending();
    state.history.returned(client, &pending);
    let until = state.manager.epoch;
    let from = &mut state.clients[client];
    from.phase = Phase::Idle;
    from.late = Some(Late { seq: from.seq, value: from.value, began: from.began, until });
    from.unsynced = rules.syncs;
    if !rules.syncs {
        from.losses = 0;
    }
    (from.value, from.began) = (0, 0);
    Some(())
}
