// What a queue keeps is the device's.
fn take(handle: verbs_safe::AddressHandle) {
    drop(handle.inner);
}

fn main() {}
