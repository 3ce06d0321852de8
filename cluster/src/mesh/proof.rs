//! Proof of knowing the cluster's secret, without saying it.
//!
//! The proof covers a value that only the two ends of one TLS connection know, so it cannot be taken to another connection,
//! and it covers which end speaks, so it cannot be sent back.

use super::socket::Binding;
use aws_lc_rs::hmac;

#[derive(Clone, Copy)]
pub(super) enum End {
    Dialler,
    Acceptor,
}

pub(super) struct Secret(hmac::Key);

impl Secret {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(super) fn prove(&self, end: End, binding: &Binding) -> Vec<u8> {
        hmac::sign(&self.0, &text(end, binding)).as_ref().to_vec()
    }

    /// What ractor_cluster calls its cookie. Its handshake lets an observer guess at it, so it is not the secret itself.
    pub(super) fn cookie(&self) -> String {
        let cookie = hmac::sign(&self.0, b"granary gate");
        cookie.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn is_proven(&self, end: End, binding: &Binding, proof: &[u8]) -> bool {
        hmac::verify(&self.0, &text(end, binding), proof).is_ok()
    }
}

fn text(end: End, binding: &Binding) -> Vec<u8> {
    let end: &[u8] = match end {
        End::Dialler => b"granary hello, dialler: ",
        End::Acceptor => b"granary hello, acceptor: ",
    };
    [end, binding].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_secret_its_connection_and_its_end_only() {
        let (ours, theirs) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
        let (here, elsewhere) = ([7; 32], [8; 32]);
        let proof = ours.prove(End::Dialler, &here);
        assert!(ours.is_proven(End::Dialler, &here, &proof));
        assert!(!theirs.is_proven(End::Dialler, &here, &proof));
        assert!(!ours.is_proven(End::Dialler, &elsewhere, &proof));
        assert!(!ours.is_proven(End::Acceptor, &here, &proof));
        assert!(!ours.is_proven(End::Dialler, &here, &[]));
    }
}
