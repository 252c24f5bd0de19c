use super::*;

#[test]
fn one_device_is_and_several_are() {
    let unknown = |known: &[&str]| OpenError::Unknown {
        name: "rxe9".into(),
        known: known.iter().map(|name| (*name).to_owned()).collect(),
    };
    let says = |known: &[&str]| unknown(known).to_string();
    assert_eq!(says(&["soft0"]), "no device is called rxe9: there is soft0");
    assert_eq!(says(&["rxe0", "soft0"]), "no device is called rxe9: there are rxe0, soft0");
}

#[test]
fn an_empty_variable_names_no_device() {
    assert_eq!([None, Some(""), Some("rxe0")].map(wanted), [SOFT, SOFT, "rxe0"]);
}
