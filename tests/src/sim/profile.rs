//! What kind of trouble a seed is about.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Of everything a little.
    Everything,
    /// Machines lose their power again and again, one or all.
    PowerCuts,
    /// Leaderships go to and fro.
    Restless,
    /// Machines join, leave for good and lose their volumes, one after the other.
    Roaming,
    /// Owners are frozen for 20 to 60 s, under reads through every node that wait for them to wake.
    Sleepers,
}

const ALL: [Profile; 5] =
    [Profile::Everything, Profile::PowerCuts, Profile::Restless, Profile::Roaming, Profile::Sleepers];

impl Profile {
    pub fn of(seed: u64) -> Self {
        match seed % 10 {
            0 => Self::Sleepers,
            3 => Self::PowerCuts,
            5 => Self::Restless,
            7 => Self::Roaming,
            _ => Self::Everything,
        }
    }

    /// In virtual milliseconds.
    pub fn load_ms(self) -> u64 {
        match self {
            Self::Everything | Self::PowerCuts | Self::Restless => 15_000,
            Self::Roaming => 35_000,
            Self::Sleepers => 70_000,
        }
    }

    pub fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|profile| profile.name() == name)
    }
}
