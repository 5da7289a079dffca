/** The `UnicodeScripts` pre-tokenizer: cuts where one script ends and another begins. */

import { CLASSES } from './character-sets.js';

const SCRIPTS = (
  'Latin Common Cyrillic Han Arabic Greek Hangul Hiragana Katakana Inherited Adlam Ahom Anatolian_Hieroglyphs Armenian ' +
  'Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal ' +
  'Carian Caucasian_Albanian Chakma Cham Cherokee Coptic Cuneiform Cypriot Deseret Devanagari Duployan ' +
  'Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Gujarati Gurmukhi Hanunoo Hatran Hebrew ' +
  'Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer ' +
  'Khojki Khudawadi Lao Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen ' +
  'Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean ' +
  'New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian ' +
  'Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician ' +
  'Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sora_Sompeng Sundanese ' +
  'Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh ' +
  'Tirhuta Ugaritic Vai Warang_Citi Yi'
).split(' ');

const WITHOUT = new RegExp(`^[${CLASSES.withoutScript}]$`, 'u');
/** Characters whose script has changed since. */
const CHANGED: ReadonlyMap<string, string> = new Map([
  ['\u0589', 'Common'],
  ['\u061c', 'Common'],
  ['\u0953', 'Devanagari'],
  ['\u0954', 'Devanagari'],
]);
let expressions: readonly (readonly [string, RegExp])[] | undefined;
const known = new Map<string, string | null>();

/** The script of a character; null for a space and for scripts of newer versions of Unicode than the reference's. */
function scriptOf(character: string): string | null {
  let script = known.get(character);
  if (script === undefined) {
    if (character === ' ' || WITHOUT.test(character)) return null;
    expressions ??= SCRIPTS.map((name) => [name, new RegExp(`\\p{Script=${name}}`, 'u')]);
    script =
      CHANGED.get(character) ?? expressions.find(([, expression]) => expression.test(character))?.[0] ?? null;
    // Japanese is written in three scripts, and its words with them.
    if (script === 'Hiragana' || script === 'Katakana' || character === '\u30fc') script = 'Han';
    known.set(character, script);
  }
  return script;
}

/** Cuts a text where its script changes; a space goes with what lies before it. */
export function splitAtScripts(text: string): string[] {
  const pieces: string[] = [];
  let start = -1;
  let last: string | undefined;
  let at = 0;
  for (const character of text) {
    const script = scriptOf(character);
    if (script !== null) {
      if (last !== script) {
        if (start >= 0) pieces.push(text.slice(start, at));
        start = at;
      }
      last = script;
    }
    at += character.length;
  }
  // As in the reference what lies before the first script is lost.
  if (start >= 0) pieces.push(text.slice(start));
  return pieces;
}
