use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn nothing_is_followed_while_a_kernel_believes_what_everything_was_recalled_of() {
    let mut at = Followed { number: 3, ..Followed::default() };
    let answer = |number, everything| Recalled { number, everything, ..Recalled::default() };
    at.forget(9, ms(1_000));
    assert_eq!(at.go_on(&answer(9, true), ms(1_000), ms(0)), ms(0), "that it has forgotten");
    assert_eq!((at.number, at.forgotten), (3, 9));
    assert_eq!(at.go_on(&answer(3, false), ms(0), ms(1)), ASK_AGAIN);
    assert_eq!(at.go_on(&answer(11, false), ms(120), ms(500)), ASK_AGAIN, "a later recall neither");
    assert_eq!((at.number, at.told), (3, 11));
    assert_eq!(at.go_on(&answer(11, false), ms(120), ms(900)), ms(120), "both are over then");
    assert_eq!(at.number, 11);
    // Everything once more: of that nothing is left to wait for but a moment.
    at.forget(12, ms(2_000));
    assert_eq!(at.go_on(&answer(12, true), ms(150), ms(1_850)), ms(0));
    assert_eq!(at.number, 11);
    assert_eq!(at.go_on(&answer(11, false), ms(0), ms(1_860)), ms(140));
    assert_eq!(at.number, 12);
}

#[test]
fn a_drop_that_always_fails_holds_up_what_is_recalled_no_longer_than_the_server_waits() {
    let mut at = Followed::default();
    let pauses: Vec<_> = std::iter::from_fn(|| at.try_again(false)).collect();
    assert_eq!((pauses.len(), pauses.iter().sum()), (5, Duration::from_millis(3_100)));
    assert_eq!((at.try_again(false), at.not_dropped), (None, 7), "each later one tries again");
    assert_eq!((at.try_again(true), at.not_dropped), (None, 0));
    assert_eq!(at.try_again(false), Some(PAUSE));
}
