use super::*;

fn demand() -> Demand {
    Demand {
        files: 100_000_000,
        bytes: 400 << 40,
        small: 0.0,
        small_bytes: 0,
        clients: 200,
        used_files: 10_000,
        servers: 16,
        targets: 4,
        link: 1_250_000_000,
        copies: 1,
        chunk: 1 << 20,
        engine: Some(Engine::Embedded),
        meta_servers: None,
        creates_per_s: 0,
        stats_per_s: 0,
    }
}

#[test]
fn twice_as_much_takes_twice_as_much() {
    let one = demand().needs();
    let two = Demand { files: 200_000_000, bytes: 800 << 40, ..demand() }.needs();
    let ratio = |a: u64, b: u64| b as f64 / a as f64;
    let disk = |needs: &Needs| needs.metadata.offer.disk_bytes;
    assert!((1.9..2.1).contains(&ratio(disk(&one), disk(&two))));
    assert!((1.99..2.01).contains(&ratio(one.storage.buy_bytes, two.storage.buy_bytes)));
    assert_eq!(one.metadata.memory_bytes, two.metadata.memory_bytes, "memory is bounded");
    let copies = Demand { copies: 2, ..demand() }.needs();
    assert!((1.99..2.01).contains(&ratio(one.storage.buy_bytes, copies.storage.buy_bytes)));
    assert_eq!(disk(&copies), disk(&one));
    assert!(one.network.heal_s.is_none() && copies.network.heal_s.is_some());
}

#[test]
fn what_is_small_lies_with_the_metadata_alone() {
    let small =
        Demand { small: 1.0, small_bytes: 2 << 10, bytes: 100_000_000 * (2 << 10), ..demand() };
    let needs = small.needs();
    assert_eq!((needs.storage.disk_bytes, needs.network.fill_s), (0, 0));
    assert!(needs.metadata.offer.disk_bytes > small.bytes);
}

#[test]
fn what_does_not_fit_is_said() {
    assert_eq!(demand().needs().problems, [""; 0]);
    let crowd = Demand { clients: 3_000, used_files: 1_000_000, ..demand() }.needs();
    assert_eq!(crowd.problems.len(), 2, "{:?}", crowd.problems);
    assert!(crowd.problems[0].contains("connections"));
    // No number of clients would do.
    let wide = Demand { servers: 2_100, ..demand() }.needs();
    assert!(wide.problems[0].ends_with("take fewer servers"), "{:?}", wide.problems);
    assert!(!copies_possible(2, 1, 1) && !copies_possible(4, 9, 9) && copies_possible(3, 1, 3));
}

#[test]
fn the_first_engine_that_does_is_taken_and_the_one_that_is_wanted_is_told_of_another() {
    let engine = |demand: &Demand| demand.needs().metadata.offer.engine;
    let free = Demand { engine: None, ..demand() };
    assert_eq!(engine(&free), Engine::Embedded);
    let many = Demand { files: 2_000_000_000, ..free.clone() };
    assert_eq!(engine(&many), Engine::Postgres);
    assert_eq!(engine(&Demand { files: 100_000_000_000, ..free.clone() }), Engine::Tikv);
    assert_eq!(many.needs().problems, [""; 0]);

    let problems = |demand: Demand| demand.needs().problems.join("; ");
    let told = problems(Demand { engine: Some(Engine::Embedded), ..many.clone() });
    assert!(told.starts_with("embedded: 2G files, at most 1G: one server"), "{told}");
    assert!(told.ends_with("--engine postgres does"), "{told}");
    let few = Demand { meta_servers: Some(2), creates_per_s: 50_000, ..many.clone() };
    assert!(problems(few).ends_with("leave out --meta-servers to see how many it takes"));
    let far = Demand { creates_per_s: 1_000_000, ..many };
    assert_eq!(engine(&far), Engine::Postgres, "of those that do not do");
    assert!(problems(far).ends_with("plan several clusters"));
}

#[test]
fn several_metadata_servers_divide_leases_and_not_sessions() {
    let of = |meta_servers| {
        let engine = Some(Engine::Postgres);
        Demand { engine, meta_servers: Some(meta_servers), ..demand() }.needs()
    };
    let (one, four) = (of(1), of(4));
    assert_eq!(one.metadata.lease_bytes, 4 * four.metadata.lease_bytes);
    // Sixteen shares, of which each server has four, and a mount a session with each.
    assert_eq!((one.metadata.offer.shares, four.metadata.offer.shares), (1, 16));
    assert_eq!(one.metadata.idle_messages_per_s, 240);
    assert_eq!(four.metadata.idle_messages_per_s, 960);
    assert_eq!(four.client.connections, one.client.connections + 3 * 3);
    assert!(four.advice.iter().any(|line| line.contains("--shares 16")));
}

/// One was counted, where the paper says three.
#[test]
fn a_metadata_server_has_the_connections_of_a_client_in_memory_too() {
    let memory =
        |clients| Demand { clients, used_files: 0, ..demand() }.needs().metadata.memory_bytes;
    let client = SESSION_BYTES + CONNECTIONS_PER_CLIENT * CONNECTION_BYTES;
    assert_eq!(memory(200) - memory(100), 100 * client);
}

/// A manager that also stores has six of each client, and three were counted. What is kept for servers is kept above all
/// connections, those of servers among them: 2,389 clients fitted on paper, and 22 of them were refused.
#[test]
fn a_server_of_all_roles_has_more_connections_than_one_that_stores() {
    let apart = |clients| {
        let needs = Demand { clients, ..demand() }.needs();
        let is_told = needs.advice.iter().any(|line| line.contains("--roles"));
        (is_told, needs.problems.len())
    };
    assert_eq!(apart(1_177), (false, 0));
    assert_eq!(apart(1_178), (true, 0));
    assert_eq!(apart(2_367), (true, 0));
    assert_eq!(apart(2_368), (true, 1), "the others are kept for servers");
}

/// They were left out: of 100 TiB they are more than all the rest.
#[test]
fn a_storage_server_has_in_memory_which_places_of_its_disks_are_free() {
    let storage = |bytes| Demand { bytes, ..demand() }.needs().storage;
    let (one, two) = (storage(1_600 << 40), storage(3_200 << 40));
    assert_eq!(SPACE_BYTES_PER_GIB << 10, 67 * MIB, "of a TiB");
    let more = (two.buy_bytes - one.buy_bytes) as f64 / (1_u64 << 40) as f64;
    let memory = (two.memory_bytes - one.memory_bytes) as f64 / MIB as f64;
    assert!((66.9..67.1).contains(&(memory / more)), "{memory} MiB for {more} TiB");
}

/// They were planned, bought, and the last of them refused.
#[test]
fn more_targets_than_a_cluster_takes_are_a_problem() {
    let problems = |servers, targets| Demand { servers, targets, ..demand() }.needs().problems;
    assert_eq!(problems(1_000, 8), [""; 0]);
    let told = problems(1_000, 12);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("12,000 targets, and a cluster has at most 8,000: "), "{told:?}");
}

/// It was said only where there were clients; then only where servers refused each other, when they refused commands long since.
#[test]
fn servers_that_are_too_many_for_each_other_are_too_many_without_clients() {
    let problems = |servers| Demand { servers, clients: 0, ..demand() }.needs().problems;
    assert_eq!(problems(1_919), [""; 0]);
    let told = problems(1_920);
    assert!(told[0].ends_with("take fewer servers"), "{told:?}");
}

#[test]
fn no_number_is_too_large() {
    let most = u64::MAX;
    for chunk in [0, most] {
        let all = Demand {
            files: most,
            bytes: most,
            small: 0.5,
            small_bytes: most,
            clients: most,
            used_files: most,
            servers: most,
            targets: most,
            link: most,
            copies: most,
            chunk,
            engine: Some(Engine::Postgres),
            meta_servers: Some(most),
            creates_per_s: most,
            stats_per_s: most,
        };
        assert!(!all.needs().problems.is_empty());
    }
}
