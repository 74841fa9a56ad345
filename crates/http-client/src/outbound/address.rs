//! Detection of addresses that are not on the public internet, by the registries of special-purpose
//! addresses (RFC 6890; IANA, IPv4 and IPv6 Special-Purpose Address Registry).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A range of addresses that are not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpecialRange {
    pub(super) range: IpNet,
    pub(super) kind: &'static str,
}

/// Returns the range that contains an address, or `None` if the address is public. An IPv4 address
/// within an IPv6 one is judged as an IPv4 address.
pub(super) fn find_special_range(address: IpAddr) -> Option<SpecialRange> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(embedded) => special_v4(embedded),
            None => special_v6(address),
        },
    }
}

fn special_v4(address: Ipv4Addr) -> Option<SpecialRange> {
    let found = SPECIAL_V4.iter().find(|(range, _)| range.contains(&address))?;
    Some(SpecialRange { range: found.0.into(), kind: found.1 })
}

fn special_v6(address: Ipv6Addr) -> Option<SpecialRange> {
    let found = SPECIAL_V6.iter().find(|(range, _)| range.contains(&address));
    let unassigned = (!GLOBAL_UNICAST.contains(&address)).then_some(&UNASSIGNED_RANGE);
    let (range, kind) = found.or(unassigned)?;
    Some(SpecialRange { range: (*range).into(), kind })
}

/// Returns the IPv4 address that packets to an IPv6 address reach (RFC 4291, 2.5.5.2; RFC 6052,
/// 2.1; RFC 3056, 2).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    if address.to_ipv4_mapped().is_some() || TRANSLATED_RANGE.contains(&address) {
        return Some(Ipv4Addr::new(a, b, c, d));
    }
    let [_, _, a, b, c, d, ..] = address.octets();
    SIX_TO_FOUR.contains(&address).then(|| Ipv4Addr::new(a, b, c, d))
}

const PRIVATE_KIND: &str = "private";
const LOOPBACK_KIND: &str = "loopback";
const LINK_LOCAL: &str = "link-local";
const MULTICAST_KIND: &str = "multicast";
const DOCUMENTATION_KIND: &str = "documentation";
const RESERVED_KIND: &str = "reserved";

const SPECIAL_V4: [(Ipv4Net, &str); 16] = [
    (v4([0, 0, 0, 0], 8), "unspecified"),
    (v4([10, 0, 0, 0], 8), PRIVATE_KIND),
    (v4([100, 64, 0, 0], 10), "carrier"),
    (v4([127, 0, 0, 0], 8), LOOPBACK_KIND),
    (v4([169, 254, 0, 0], 16), LINK_LOCAL),
    (v4([172, 16, 0, 0], 12), PRIVATE_KIND),
    (v4([192, 0, 0, 0], 24), RESERVED_KIND),
    (v4([192, 0, 2, 0], 24), DOCUMENTATION_KIND),
    (v4([192, 88, 99, 0], 24), RESERVED_KIND),
    (v4([192, 168, 0, 0], 16), PRIVATE_KIND),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), DOCUMENTATION_KIND),
    (v4([203, 0, 113, 0], 24), DOCUMENTATION_KIND),
    (v4([224, 0, 0, 0], 4), MULTICAST_KIND),
    (v4([240, 0, 0, 0], 4), RESERVED_KIND),
    (v4([255, 255, 255, 255], 32), RESERVED_KIND),
];

const SPECIAL_V6: [(Ipv6Net, &str); 7] = [
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), LOOPBACK_KIND),
    (v6([0xfc00, 0], 7), PRIVATE_KIND),
    (v6([0xfe80, 0], 10), LINK_LOCAL),
    (v6([0xff00, 0], 8), MULTICAST_KIND),
    (v6([0x2001, 0], 23), RESERVED_KIND),
    (v6([0x2001, 0xdb8], 32), DOCUMENTATION_KIND),
    (v6([0x3fff, 0], 20), DOCUMENTATION_KIND),
];

/// Range that contains all public IPv6 addresses.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0], 3);
/// Range of all addresses that are in no other range.
const UNASSIGNED_RANGE: (Ipv6Net, &str) = (v6([0, 0], 0), RESERVED_KIND);
const TRANSLATED_RANGE: Ipv6Net = v6([0x64, 0xff9b], 96);
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0], 16);

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

/// Creates a range that its first two groups determine.
const fn v6([first, second]: [u16; 2], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_that_is_not_public_is_known_however_it_is_written() {
        for (address, kind) in [
            ("8.8.8.8", None),
            ("0.0.0.0", Some("unspecified")),
            ("10.255.255.255", Some(PRIVATE_KIND)),
            ("100.64.0.1", Some("carrier")),
            ("127.9.9.9", Some(LOOPBACK_KIND)),
            ("169.254.169.254", Some(LINK_LOCAL)),
            ("172.31.0.1", Some(PRIVATE_KIND)),
            ("172.32.0.1", None),
            ("192.168.1.1", Some(PRIVATE_KIND)),
            ("224.0.0.1", Some(MULTICAST_KIND)),
            ("255.255.255.255", Some(RESERVED_KIND)),
            ("2606:4700::1111", None),
            ("::", Some(RESERVED_KIND)),
            ("::1", Some(LOOPBACK_KIND)),
            ("::127.0.0.1", Some(RESERVED_KIND)),
            ("::ffff:127.0.0.1", Some(LOOPBACK_KIND)),
            ("::ffff:10.0.0.1", Some(PRIVATE_KIND)),
            ("::ffff:8.8.8.8", None),
            ("64:ff9b::a9fe:a9fe", Some(LINK_LOCAL)),
            ("64:ff9b::808:808", None),
            ("64:ff9b:1::1", Some(RESERVED_KIND)),
            ("2002:a00:1::", Some(PRIVATE_KIND)),
            ("2001::1", Some(RESERVED_KIND)),
            ("2001:db8::1", Some(DOCUMENTATION_KIND)),
            ("fd00::1", Some(PRIVATE_KIND)),
            ("fe80::1", Some(LINK_LOCAL)),
            ("fec0::1", Some(RESERVED_KIND)),
            ("ff02::1", Some(MULTICAST_KIND)),
        ] {
            let found = find_special_range(address.parse().unwrap());
            assert_eq!(found.map(|range| range.kind), kind, "{address}");
        }
    }
}
