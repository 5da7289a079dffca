/**
 * The terminals of Lark's library `common`, as patterns. Where Lark writes a lazy quantifier (strings, comments in C), the text ends at the first
 * end mark.
 */

const DIGITS = '[0-9]+';
const EXPONENT = '[eE][+-]?[0-9]+';
const DECIMAL = '(?:[0-9]+\\.[0-9]*|\\.[0-9]+)';
const FLOAT = `(?:${DIGITS}${EXPONENT}|${DECIMAL}(?:${EXPONENT})?)`;
const NUMBER = `(?:${FLOAT}|${DIGITS})`;

const COMMON: Readonly<Record<string, string>> = {
  DIGIT: '[0-9]',
  HEXDIGIT: '[0-9a-fA-F]',
  INT: DIGITS,
  SIGNED_INT: `[+-]?${DIGITS}`,
  DECIMAL,
  FLOAT,
  SIGNED_FLOAT: `[+-]?${FLOAT}`,
  NUMBER,
  SIGNED_NUMBER: `[+-]?${NUMBER}`,
  ESCAPED_STRING: '"(?:[^"\\\\\\n]|\\\\[^\\n])*"',
  LCASE_LETTER: '[a-z]',
  UCASE_LETTER: '[A-Z]',
  LETTER: '[A-Za-z]',
  WORD: '[A-Za-z]+',
  CNAME: '[A-Za-z_][A-Za-z0-9_]*',
  WS_INLINE: '[ \\t]+',
  WS: '[ \\t\\f\\r\\n]+',
  CR: '\\r',
  LF: '\\n',
  NEWLINE: '(?:\\r?\\n)+',
  SH_COMMENT: '#[^\\n]*',
  CPP_COMMENT: '//[^\\n]*',
  C_COMMENT: '/\\*(?:[^*]|\\*+[^*/])*\\*+/',
  SQL_COMMENT: '--[^\\n]*',
};

export const COMMON_NAMES: readonly string[] = Object.keys(COMMON);

/** The pattern of a terminal of `common`; undefined for one that is not there. */
export function commonTerminal(name: string): string | undefined {
  return Object.hasOwn(COMMON, name) ? COMMON[name] : undefined;
}
