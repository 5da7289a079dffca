/** Patterns of the formats that are enforced, each for a whole string. */

const DAY_OF_MONTH = [
  '(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])',
  '(0[469]|11)-(0[1-9]|[12][0-9]|30)',
  '02-(0[1-9]|1[0-9]|2[0-8])',
].join('|');
/** Of those, every fourth but three of four centuries. */
const LEAP_YEAR = '([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)';
const DATE = `([0-9]{4}-(${DAY_OF_MONTH})|${LEAP_YEAR}-02-29)`;
const TIME = '([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])';
const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const IPV4 = `${OCTET}(\\.${OCTET}){3}`;
const GROUP = '[0-9a-fA-F]{1,4}';
const IPV6 = [
  `(${GROUP}:){7}${GROUP}`,
  `(${GROUP}:){1,7}:`,
  ...[1, 2, 3, 4, 5, 6].map((after) => `(${GROUP}:){1,${7 - after}}(:${GROUP}){1,${after}}`),
  `:((:${GROUP}){1,7}|:)`,
  // The last two groups as an address of version 4.
  `(${GROUP}:){6}${IPV4}`,
  `::(${GROUP}:){0,5}${IPV4}`,
  ...[1, 2, 3, 4, 5].map((before) => `(${GROUP}:){${before}}(:${GROUP}){0,${5 - before}}:${IPV4}`),
].join('|');
const [ALNUM, HYPHENED] = ['[A-Za-z0-9]', '[A-Za-z0-9-]'];
/** Not with hyphens at the third and fourth place: such labels stand for others, by rules of their own (Punycode). */
const label = (most: number): string =>
  `${ALNUM}(${ALNUM}|${HYPHENED}{1,2}${ALNUM}|${HYPHENED}(${ALNUM}${HYPHENED}|-${ALNUM})${HYPHENED}{0,${most - 5}}${ALNUM})?`;
/** Up to three long labels, or eight of 30: 253 characters at most. */
const HOSTNAME = `(${label(63)}(\\.${label(63)}){0,2}|${label(30)}(\\.${label(30)}){0,7})`;
const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const NAMED = "[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}";
const PATH = `${NAMED}|[:@]`;
const AUTHORITY = `((${NAMED}|:)*@)?((${NAMED})*|\\[(${IPV6})\\])(:[0-9]*)?`;
const HIERARCHY = `//${AUTHORITY}(/(${PATH})*)*|/?((${PATH})+(/(${PATH})*)*)?`;
const URI = `[A-Za-z][A-Za-z0-9+.-]*:(${HIERARCHY})(\\?(${PATH}|[/?])*)?(#(${PATH}|[/?])*)?`;

export const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  'date-time': `${DATE}T${TIME}`,
  duration:
    'P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))',
  uuid: '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
  email: `${ATOM}(\\.${ATOM})*@${label(63)}(\\.${label(63)}){0,2}`,
  hostname: HOSTNAME,
  ipv4: IPV4,
  ipv6: IPV6,
  uri: URI,
};
