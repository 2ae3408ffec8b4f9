//! An application on a mounted volume, which does what a test tells it.

fn main() {
    strake_tests::applications::run();
}
