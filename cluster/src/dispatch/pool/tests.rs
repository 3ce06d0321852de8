use super::*;

impl Pool {
    /// For a test that failed.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for (id, w) in &self.workers {
            let seat = match &w.seat {
                Seat::Away => "away".to_owned(),
                Seat::Here(h) => format!("here placed {} of {} promised {:?}", h.placed, h.capacity, h.promises),
                Seat::Far(f) => format!("at {} room {} sent {}", f.edge, f.room, f.sent),
            };
            text += &format!("  {id} session {} taken {} {seat}\n", w.session, w.taken);
        }
        for (id, l) in self.leases.iter() {
            text += &format!(
                "  lease {id} {:?} {:?} session {} place {} {:?}\n",
                l.lease, l.standing, l.session, l.has_place, l.delivery
            );
        }
        for (id, g) in self.guests.iter() {
            text += &format!("  guest {id} {:?} session {} place {}\n", g.lease, g.session, g.has_place);
        }
        for (name, q) in &self.queues {
            text += &format!("  queue {name} waiting {} wants {:?}\n", q.waiting.len(), q.wants);
        }
        text + &format!("  claiming {} untold {}\n", self.claiming.len(), self.untold.len())
    }
}
