//! File of a command, and the check that the dynamic linker would preload a library into it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::outcome::{CommandError, usage};
use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

/// The file that a shell would run: in the folders of PATH, unless the name has a slash.
pub(super) fn find(name: &OsStr, folders: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    let shown = name.to_string_lossy();
    let missing = || usage(format!("{shown}: no such program: name one that can be run"));
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            _ if is_executable(&path) => Ok(path),
            Ok(meta) if meta.is_dir() => Err(refused(&path, "it is a folder: name a program")),
            Ok(_) => Err(refused(&path, "it is not executable: `chmod +x` makes it so")),
            Err(_) => Err(missing()),
        };
    }
    std::env::split_paths(folders.unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
        .ok_or_else(missing)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Scripts that name scripts: the kernel goes no further, either.
const SCRIPTS: u32 = 5;

/// Fails, with the reason, if nothing would be preloaded into the program.
pub(super) fn check(path: &Path) -> Result<(), CommandError> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS {
        check_mode(&path)?;
        let start = start(&path)?;
        match interpreter(&start) {
            Some(interpreter) => path = interpreter,
            None => return check_elf(&path, &start),
        }
    }
    Err(refused(&path, "it is a script of a script of a script: name the last interpreter"))
}

fn refused(path: &Path, why: &str) -> CommandError {
    usage(format!("{}: {why}", path.display()))
}

/// Programs that run with others' rights take no library of the user's.
fn check_mode(path: &Path) -> Result<(), CommandError> {
    const SET_ID: u32 = 0o6000;
    let meta = path.metadata().map_err(|e| refused(path, &e.to_string()))?;
    if meta.mode() & SET_ID != 0 {
        return Err(refused(
            path,
            "it is setuid or setgid, and the dynamic linker preloads nothing into it: run a copy \
             of the file without these bits",
        ));
    }
    // Or more rights than its user, by an attribute of the file; without one, this fails.
    if rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 0]).is_ok() {
        return Err(refused(
            path,
            "it has capabilities, and the dynamic linker preloads nothing into it: run a copy of \
             the file, which has none",
        ));
    }
    Ok(())
}

/// The first part of the file: program headers follow the file's header in what linkers make.
fn start(path: &Path) -> Result<Vec<u8>, CommandError> {
    const BYTES: u64 = 64 << 10;
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES).read_to_end(&mut start));
    // The kernel runs what cannot be read; what it is then stays open.
    read.map_err(|e| refused(path, &format!("it cannot be examined: {e}")))?;
    Ok(start)
}

/// Returns the program in the first line of a script.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty());
    Some(Path::new(OsStr::from_bytes(words.next()?)).to_owned())
}

fn check_elf(path: &Path, start: &[u8]) -> Result<(), CommandError> {
    let not_ours = || refused(path, "it is no program for x86-64: the library is");
    let header = FileHeader64::<Endianness>::parse(start).map_err(|_| not_ours())?;
    let endian = header.endian().map_err(|_| not_ours())?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(not_ours());
    }
    let headers = header.program_headers(endian, start).map_err(|_| not_ours())?;
    let has = |kind| headers.iter().any(|header| header.p_type(endian) == kind);
    if !has(PT_INTERP) || !has(PT_DYNAMIC) {
        return Err(refused(
            path,
            "it is linked statically, so that nothing can be preloaded: link it with \
             libibverbs.so.1",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
