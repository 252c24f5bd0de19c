//! Each example runs, on the device that everything runs on. They check by themselves
//! that what arrives is what was sent.
#![allow(clippy::duplicate_mod, reason = "each example has what the examples share")]

macro_rules! examples {
    ($($name:ident $path:literal)*) => {
        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                self::$name::main().unwrap();
            }
        )*

        /// An example that is not listed here would run nowhere.
        #[test]
        fn all_of_them_are_tested() {
            let known = [$(stringify!($name)),*];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                if path.extension().is_some_and(|e| e == "rs") {
                    assert!(known.contains(&name), "{name}");
                }
            }
        }
    };
}

examples! {
    send_recv "../examples/send_recv.rs"
    write_polling "../examples/write_polling.rs"
    optimizations "../examples/optimizations.rs"
    srq "../examples/srq.rs"
    srq_classes "../examples/srq_classes.rs"
    write_imm "../examples/write_imm.rs"
    datagrams "../examples/datagrams.rs"
    replicated "../examples/replicated.rs"
    direct_read "../examples/direct_read.rs"
    request_reply "../examples/request_reply.rs"
}
