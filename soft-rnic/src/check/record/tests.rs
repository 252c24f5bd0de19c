use super::*;

#[test]
fn a_line_is_read_as_it_was_written() {
    let file = std::env::temp_dir().join(format!("record-{}", std::process::id()));
    std::fs::write(&file, b"").unwrap();
    let record = || RecordFile { file: Some(file.clone().into()), ..RecordFile::default() };
    let one = record();
    one.mark(RecordMark::Checked, "a program").unwrap();
    one.mark(RecordMark::Finding, "f n 7").unwrap();
    record().mark(RecordMark::Note, "").unwrap();
    let all = read(std::fs::File::open(&file).unwrap()).unwrap();
    let of = CheckedProcess {
        process: std::process::id(),
        program: "a program".into(),
        findings: vec!["f n 7".into()],
        notes: vec![String::new()],
    };
    assert_eq!(all, [of]);
    std::fs::remove_file(&file).unwrap();
    let gone = record();
    assert!(gone.mark(RecordMark::Note, "").is_err());
    assert!(gone.mark(RecordMark::Note, "").is_ok(), "it is said once");
    RecordFile::default().mark(RecordMark::Note, "").unwrap();
}

#[test]
fn what_no_process_writes_is_left_out() {
    assert_eq!(read(&b""[..]).unwrap(), []);
    let all = read(&b"x 1 a\nf 1\nf -1 a\nff 1 a\n\xff\nc 2 a\xffb\nc 2"[..]).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].process, &*all[0].program), (2, "a\u{fffd}b"));
}
