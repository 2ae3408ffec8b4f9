//! What a metadata store says that refuses changes: it has no room, or has stopped after its disk failed.

/// What it says is wrong, and what mends it in its words; `None`: something else was said. Also where it was passed on as an error,
/// which says of which kind it is.
pub fn of_store(said: &str) -> Option<(&str, &str)> {
    const FULL: &str = ": no space left";
    if has_stopped(said) {
        return said.rsplit_once("; ");
    }
    let (what, mend) = said.split_once("; ").filter(|(what, _)| what.ends_with(FULL))?;
    Some((what, mend.strip_suffix(FULL).unwrap_or(mend)))
}

/// True if it is one that takes no changes before its server is started again. Such a store is its server's own.
pub fn has_stopped(said: &str) -> bool {
    said.contains("metadata store ") && said.contains(" stopped after an I/O error (")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_engine::kv::KvError;

    #[test]
    fn a_store_that_has_stopped_is_known_by_its_words_with_what_mends_it() {
        let (store, cause) = ("/d/meta".to_owned(), "checksum; EIO".to_owned());
        let said = KvError::Poisoned { store, cause }.to_string();
        let (what, mend) = of_store(&said).unwrap();
        assert_eq!(what, "metadata store /d/meta stopped after an I/O error (checksum; EIO)");
        assert!(has_stopped(what) && mend.starts_with("restart its server"), "{mend}");
        let other = KvError::Io { store: "/d/meta".into(), cause: "EIO; x".into() }.to_string();
        assert_eq!(of_store(&other), None);
    }
}
