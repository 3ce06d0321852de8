//! The messages of Granary, generated from the `.proto` files of this package.
//!
//! `v1` is the public API, `calls` the calls between edge and grains, `peers` what nodes say to each other, `storage` what lies on disk. All change only by
//! adding. With the feature `rpc` the service traits and clients are there too.

pub mod wire;

// The generated code refers to itself by package, so the modules follow the packages.
#[allow(clippy::all)]
mod granary {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/granary.v1.rs"));
    }
    pub mod calls {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/granary.calls.v1.rs"));
        }
    }
    pub mod peers {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/granary.peers.v1.rs"));
        }
    }
    pub mod storage {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/granary.storage.v1.rs"));
        }
    }
}

pub use granary::calls::v1 as calls;
pub use granary::peers::v1 as peers;
pub use granary::storage::v1 as storage;
pub use granary::v1;

/// The compiled descriptor set, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
