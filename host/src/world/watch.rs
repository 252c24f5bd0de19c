//! What a thread polls.

/// What a thread has looked at since it last rested, and whether any of it has changed.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Addresses of words and queues.
    things: Vec<usize>,
    has_news: bool,
}

/// A thread that looks at more than this does not rest.
const MOST: usize = 256;

impl Watch {
    pub(super) fn add(&mut self, thing: usize) {
        if self.has_news || self.things.contains(&thing) {
            return;
        }
        if self.things.len() == MOST {
            self.has_news = true;
            return;
        }
        self.things.push(thing);
    }

    /// So many bytes from there on change.
    pub(super) fn change(&mut self, from: usize, len: usize) {
        self.has_news |= self.things.iter().any(|thing| thing.wrapping_sub(from) < len);
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// The thread looks anew.
    pub(super) fn clear(&mut self) {
        self.things.clear();
        self.has_news = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_what_was_looked_at_is_news_until_the_next_look() {
        let mut watch = Watch::default();
        watch.add(64);
        watch.change(56, 8);
        watch.change(65, 100);
        assert!(!watch.has_news());
        watch.change(60, 5);
        assert!(watch.has_news());
        watch.clear();
        watch.change(60, 5);
        assert!(!watch.has_news());
    }

    #[test]
    fn a_thread_that_looks_at_too_much_has_news() {
        let mut watch = Watch::default();
        (0..MOST).for_each(|n| watch.add(n));
        (0..MOST).for_each(|n| watch.add(n));
        assert!(!watch.has_news());
        watch.add(MOST);
        assert!(watch.has_news());
    }
}
