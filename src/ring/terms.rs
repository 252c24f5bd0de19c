//! Terms that the ends of a ring connection tell each other: [`conn_core::ring::offer`].

use conn_core::handshake::{MAX_APPLICATION, Parameters};
use conn_core::ring::offer::{HalfOffer, Offer};

use crate::error::ConnectError;
use crate::setup::{ByDirection, HalfTerms, unfit};

impl HalfTerms for HalfOffer {
    fn encode(
        terms: &ByDirection<Option<HalfOffer>>,
        user: &[u8],
        out: &mut [u8; MAX_APPLICATION],
    ) -> Result<usize, ConnectError> {
        let (there, back) = (terms.to_acceptor, terms.to_initiator);
        let offer = Offer { initiator_to_acceptor: there, acceptor_to_initiator: back, user };
        offer.encode(out).map_err(unfit)
    }

    fn decode(
        peer: &Parameters<'_>,
        from_initiator: bool,
    ) -> Result<ByDirection<Option<HalfOffer>>, ConnectError> {
        let offer = Offer::decode(peer.application).map_err(unfit)?;
        offer.fits(peer, from_initiator).map_err(unfit)?;
        let (there, back) = (offer.initiator_to_acceptor, offer.acceptor_to_initiator);
        Ok(ByDirection { to_acceptor: there, to_initiator: back })
    }

    fn user_data(said: &[u8], _directions: usize) -> &[u8] {
        Offer::decode(said).map_or(&[], |offer| offer.user)
    }
}
