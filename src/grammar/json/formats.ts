/** Patterns of the formats that the standard knows, each for a whole string: all that they take is of the format. */

const DAY_OF_MONTH = [
  '(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])',
  '(0[469]|11)-(0[1-9]|[12][0-9]|30)',
  '02-(0[1-9]|1[0-9]|2[0-8])',
].join('|');
/** Of those, every fourth but three of four centuries. */
const LEAP_YEAR = '([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)';
const DATE = `([0-9]{4}-(${DAY_OF_MONTH})|${LEAP_YEAR}-02-29)`;
/** As many as are told apart, and then some: without an end a model may go on for ever. */
const DIGITS = '[0-9]{1,24}';
const FRACTION = `(\\.${DIGITS})?`;
/** A leap second is the last one of a day of UTC. */
const TIME = `(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]${FRACTION}([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])|23:59:60${FRACTION}([Zz]|[+-]00:00))`;
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
const ATEXT = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-";
const ATOM = `[${ATEXT}]+`;
const QUOTED = '"([ !#-\\[\\]-~]|\\\\[ -~])*"';
const LITERAL = `\\[(${IPV4}|IPv6:(${IPV6}))\\]`;
const DOMAIN = `${label(63)}(\\.${label(63)}){0,2}`;
/**
 * Letters that names of hosts may have as they are, in any order: lower case, composed, written from left to right. So few of them
 * that what a label stands for is not too long.
 */
const LETTERS = 'a-z0-9ß-öø-ÿά-ώа-џぁ-ゖァ-ヺ一-鿿가-힣';
const IDN_LABEL = `(${label(63)}|[${LETTERS}]{1,10})`;
const IDN = `${IDN_LABEL}(\\.${IDN_LABEL}){0,2}`;
/** RFC 3986, and RFC 3987 with what it has besides ASCII, in the planes of Unicode that have letters. */
const ASCII_NAMED = "A-Za-z0-9._~!$&'()*+,;=-";
const range = (low: number, high: number): string =>
  `${String.fromCodePoint(low)}-${String.fromCodePoint(high)}`;
const OTHERS = [
  range(0xa0, 0xd7ff),
  range(0xf900, 0xfdcf),
  range(0xfdf0, 0xffef),
  ...[1, 2, 3].map((plane) => range(0x10000 * plane, 0x10000 * plane + 0xfffd)),
].join('');
const ENCODED = '%[0-9A-Fa-f]{2}';

interface References {
  readonly absolute: string;
  readonly any: string;
}

/** @param more characters of names */
function references(more: string): References {
  const named = `[${more}${ASCII_NAMED}]|${ENCODED}`;
  const path = `${named}|[:@]`;
  const behind = `(\\?(${path}|[/?])*)?(#(${path}|[/?])*)?`;
  const segments = `(/(${path})*)*`;
  const authority = `((${named}|:)*@)?((${named})*|\\[(${IPV6})\\])(:[0-9]*)?`;
  const rooted = `//${authority}${segments}|/((${path})+${segments})?`;
  const absolute = `[A-Za-z][A-Za-z0-9+.-]*:(${rooted}|((${path})+${segments})?)${behind}`;
  // The first part of a relative path has no colon: it would be a scheme.
  const relative = `(${rooted}|((${named}|@)+${segments})?)${behind}`;
  return { absolute, any: `${absolute}|${relative}` };
}

const URI = references('');
const IRI = references(OTHERS);

const VARCHAR = `([A-Za-z0-9_]|${ENCODED})`;
const VARSPEC = `${VARCHAR}(\\.?${VARCHAR})*(:[1-9][0-9]{0,3}|\\*)?`;
const TEMPLATE = `([!#$&-;=?-\\[\\]_a-z~${OTHERS}]|${ENCODED}|\\{[+#./;?&]?${VARSPEC}(,${VARSPEC})*\\})*`;

const POINTER = '(/([^~/]|~[01])*)*';

/** From a number to one that is not below it: a longer one, or of as many digits one whose first is no less, or the same. */
const BOUNDS = [
  '[0-9]{1,3},?',
  '[0-9],[1-9][0-9]{1,2}',
  '[1-9][0-9],[1-9][0-9]{2}',
  ...Array.from({ length: 10 }, (_, i) => `${i},[${i}-9]`),
  ...Array.from({ length: 8 }, (_, i) => `${i + 1}[0-9],[${i + 2}-9][0-9]`),
].join('|');
const QUANTIFIED = `([*+?]|\\{(${BOUNDS})\\})\\??`;
const ESCAPE = '\\\\([dDsSwWfnrtv^$.*+?()\\[\\]{}|/\\\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})';
const CLASS = `\\[\\^?([^\\\\\\]\\[^\\-\\n\\r]|a-z|A-Z|0-9|${ESCAPE})*\\]`;
const SINGLE = `([^\\\\^$.*+?()\\[\\]{}|\\n\\r]|\\.|${ESCAPE}|${CLASS})(${QUANTIFIED})?|[\\^$]|\\\\[bB]`;
const grouped = (inner: string): string => {
  const cases = `(${inner})*(\\|(${inner})*)*`;
  return `${SINGLE}|\\((\\?:)?${cases}\\)(${QUANTIFIED})?|\\(\\?<?[=!]${cases}\\)`;
};
/** Expressions of ECMA-262 whose groups are nested twice at most, without back references, names of groups and rare escapes. */
const TERM = grouped(grouped(SINGLE));
const REGEX = `(${TERM})*(\\|(${TERM})*)*`;

export const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  'date-time': `${DATE}[Tt]${TIME}`,
  duration: `P(${DIGITS}W|(${DIGITS}Y(${DIGITS}M(${DIGITS}D)?)?|${DIGITS}M(${DIGITS}D)?|${DIGITS}D)(T(${DIGITS}H(${DIGITS}M(${DIGITS}S)?)?|${DIGITS}M(${DIGITS}S)?|${DIGITS}S))?|T(${DIGITS}H(${DIGITS}M(${DIGITS}S)?)?|${DIGITS}M(${DIGITS}S)?|${DIGITS}S))`,
  uuid: '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
  email: `(${ATOM}(\\.${ATOM})*|${QUOTED})@(${DOMAIN}|${LITERAL})`,
  'idn-email': `[${OTHERS}${ATEXT}]+(\\.[${OTHERS}${ATEXT}]+)*@${IDN}`,
  hostname: HOSTNAME,
  'idn-hostname': IDN,
  ipv4: IPV4,
  ipv6: IPV6,
  uri: URI.absolute,
  'uri-reference': URI.any,
  iri: IRI.absolute,
  'iri-reference': IRI.any,
  'uri-template': TEMPLATE,
  'json-pointer': POINTER,
  'relative-json-pointer': `(0|[1-9][0-9]{0,8})(#|${POINTER})`,
  regex: REGEX,
};

const named = `[A-Za-z0-9._~!$&'()*+,;=:@-]|${ENCODED}`;
const SHORT_LABELS = `${ALNUM}(-?${ALNUM})*(\\.${ALNUM}(-?${ALNUM})*){0,2}`;
const SHORT_URI = `[A-Za-z][A-Za-z0-9+.]*:(//[A-Za-z0-9.-]+(:[0-9]+)?(/(${named}|/)*)?|(${named})+(/(${named}|/)*)?)(\\?(${named}|[/?])*)?(#(${named}|[/?])*)?`;
const SHORT_EMAIL = `${ATOM}(\\.${ATOM})*@${SHORT_LABELS}`;

/**
 * Formats beside a greatest length: the places of an automaton times the length would be too many. These take some of what the formats do,
 * with few places, up to `most` characters: no label of a host gets longer than it may be.
 */
export const SHORT_FORMATS: Readonly<Record<string, { readonly pattern: string; readonly most: number }>> = {
  email: { pattern: SHORT_EMAIL, most: 64 },
  'idn-email': { pattern: SHORT_EMAIL, most: 64 },
  hostname: { pattern: SHORT_LABELS, most: 63 },
  'idn-hostname': { pattern: SHORT_LABELS, most: 63 },
  uri: { pattern: SHORT_URI, most: 255 },
  iri: { pattern: SHORT_URI, most: 255 },
  'uri-reference': { pattern: SHORT_URI, most: 255 },
  'iri-reference': { pattern: SHORT_URI, most: 255 },
};

export const isFormat = (name: string): boolean => Object.hasOwn(FORMATS, name);

/**
 * What a name that is no format was meant to be: the same letters, spelled otherwise. Any other is an annotation, as the standard has
 * it: `int32`, `phone`.
 */
export const formatMeant = (name: string): string | undefined =>
  Object.keys(FORMATS).find((format) => lettersOf(format) === lettersOf(name));

const lettersOf = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
