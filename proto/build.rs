//! Compiles the .proto files in Rust (protox: no protoc on the machine) and keeps the descriptor set for reflection.

use prost::Message;
use std::path::PathBuf;

const FILES: [&str; 16] = [
    "granary/v1/common.proto",
    "granary/v1/engine.proto",
    "granary/v1/run_control.proto",
    "granary/v1/workers.proto",
    "granary/v1/skills.proto",
    "granary/v1/outside.proto",
    "granary/v1/cluster.proto",
    "granary/calls/v1/calls.proto",
    "granary/storage/v1/shard.proto",
    "granary/storage/v1/rows.proto",
    "granary/storage/v1/book.proto",
    "granary/peers/v1/raft.proto",
    "granary/peers/v1/mesh.proto",
    "granary/peers/v1/silo.proto",
    "granary/peers/v1/book.proto",
    "granary/peers/v1/relay.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let set = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), set.encode_to_vec())?;
    let rpc = std::env::var_os("CARGO_FEATURE_RPC").is_some();
    tonic_prost_build::configure()
        .build_client(rpc)
        .build_server(rpc)
        .extern_path(".google.protobuf.Timestamp", "crate::wire::Timestamp")
        .extern_path(".granary.v1.Json", "crate::wire::Json")
        .message_attribute(".granary.v1", "#[derive(serde::Serialize, serde::Deserialize)]")
        .message_attribute(".granary.v1", "#[serde(rename_all = \"camelCase\", default)]")
        .enum_attribute(".granary.v1", "#[derive(serde::Serialize, serde::Deserialize)]")
        .enum_attribute(".granary.v1", "#[serde(rename_all = \"camelCase\")]")
        // Bodies that only pass through are not copied.
        .bytes(".granary.peers.v1.RaftFrame")
        .bytes(".granary.peers.v1.RaftAnswer")
        .bytes(".granary.peers.v1.SnapshotPart")
        .bytes(".granary.peers.v1.SnapshotBegin")
        .bytes(".granary.peers.v1.SnapshotAnswer")
        .bytes(".granary.peers.v1.Envelope")
        .bytes(".granary.peers.v1.EnvelopeReply")
        .compile_fds(set)?;
    Ok(())
}
