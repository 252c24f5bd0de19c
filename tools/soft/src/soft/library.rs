//! Library that is preloaded into a program.

use std::path::{Path, PathBuf};

use base::outcome::CommandError;
use object::Endianness;
use object::elf::{DT_SONAME, ELFDATA2LSB, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn, FileHeader};

/// Names the library, where it is not beside the executable.
const LIBRARY: &str = "RDMA_CONN_SOFT_LIB";
const FILE: &str = "librdma_conn_soft.so";
/// Name of the library for the dynamic linker.
const SONAME: &[u8] = b"libibverbs.so.1";

/// Finds the library, and checks that programs take it for libibverbs.
pub(super) fn find() -> Result<PathBuf, CommandError> {
    let found = match std::env::var_os(LIBRARY) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name(FILE),
    };
    // The dynamic linker looks a relative name up in the folder where a program is started, and
    // takes spaces and colons for ends of names.
    let path = std::fs::canonicalize(&found).map_err(|e| {
        CommandError::msg(format!(
            "{}: {e}: build the library (`cargo build --release --package soft-rnic-abi` in the \
             repository gives target/release/{FILE}), and put it beside rdma-conn or name it in {LIBRARY}",
            found.display()
        ))
    })?;
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(CommandError::msg(format!(
            "{}: the dynamic linker preloads no file with a space or a colon in its path: name a \
             copy elsewhere in {LIBRARY}",
            path.display()
        )));
    }
    check(&path)?;
    Ok(path)
}

/// Fails if a program would not take the file for libibverbs.
fn check(path: &Path) -> Result<(), CommandError> {
    let refused = |why: String| CommandError::msg(format!("{}: {why}", path.display()));
    let advice = format!("name {FILE} in {LIBRARY}");
    let data = std::fs::read(path).map_err(|e| refused(format!("{e}: {advice}")))?;
    match soname(&data) {
        Some(name) if name == SONAME => Ok(()),
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            Err(refused(format!("it is the library {name}, and not libibverbs.so.1: {advice}")))
        }
        None => Err(refused(format!("it is no library for x86-64: {advice}"))),
    }
}

/// The name in a library for x86-64.
fn soname(data: &[u8]) -> Option<&[u8]> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != EM_X86_64 || header.e_ident().data != ELFDATA2LSB {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    let (entries, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let name = entries.iter().find(|entry| entry.d_tag(endian) == DT_SONAME)?;
    strings.get(name.d_val(endian).try_into().ok()?).ok()
}
