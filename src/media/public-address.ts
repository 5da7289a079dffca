/** Which addresses of the network are everybody's: those that a server may connect to because somebody it does not know asks for it. */

import { BlockList, isIP } from 'node:net';

/** Of IPv4 all but these (IANA's registry of special-purpose addresses): private, loopback, link-local, shared, reserved, multicast. */
const SPECIAL_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // A machine's way to its cloud's services, on an address that looks public (Azure).
  '168.63.129.16/32',
];

/** Of IPv6 only what is handed out at all, without what carries IPv4 within (6to4, Teredo) and what is for documents. */
const GLOBAL_V6 = '2000::/3';
const SPECIAL_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

function listOf(nets: readonly string[], family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList();
  for (const net of nets) {
    const [address, bits] = net.split('/') as [string, string];
    list.addSubnet(address, Number(bits), family);
  }
  return list;
}

const specialV4 = listOf(SPECIAL_V4, 'ipv4');
const globalV6 = listOf([GLOBAL_V6], 'ipv6');
const specialV6 = listOf(SPECIAL_V6, 'ipv6');

/**
 * Whether an IP address is of the public network.
 *
 * @example
 * isPublicAddress('93.184.216.34'); // true
 * isPublicAddress('::ffff:127.0.0.1'); // false
 */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !specialV4.check(address, 'ipv4');
    case 6:
      // A zone names an interface of this machine.
      return !address.includes('%') && globalV6.check(address, 'ipv6') && !specialV6.check(address, 'ipv6');
    default:
      return false;
  }
}
