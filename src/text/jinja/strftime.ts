const MONTHS = 'January February March April May June July August September October November December'.split(
  ' ',
);
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');
const DAY = 86_400_000;

/** How a directive is filled up where its flag says nothing: with what, and to how many characters. */
type Piece = readonly [text: string | number, width?: number, fill?: '0' | ' '];

/**
 * `moment.strftime(format)` in the C locale and the local time zone, as glibc writes it: with its flags (`-`, `_`, `0`,
 * `^`, `#`) and widths. Directives that are none stay as they are.
 */
export function strftime(moment: Date, format: string): string {
  return format.replace(
    /%([-_0^#]*)(\d*)([EO]?)([A-Za-z%+])/g,
    (whole, flags: string, width: string, _modifier: string, name: string) => {
      const piece = directive(moment, name);
      if (piece === undefined) return whole;
      const [value, least = 0, fill = '0'] = piece;
      let text = String(value);
      if (flags.includes('^')) text = text.toUpperCase();
      if (flags.includes('#')) text = name === 'p' || name === 'Z' ? text.toLowerCase() : text.toUpperCase();
      const numeric = typeof value === 'number';
      const flag = [...flags].reverse().find((character) => '-_0'.includes(character));
      if (flag === '-' && width === '') return text;
      const padding = flag === '_' ? ' ' : flag === '0' ? '0' : numeric ? fill : ' ';
      return text.padStart(width === '' ? least : Number(width), padding);
    },
  );
}

function directive(moment: Date, name: string): Piece | undefined {
  const year = moment.getFullYear();
  const dayOfYear = daysBetween(year, moment);
  const weekday = moment.getDay();
  const hour = moment.getHours();
  const hour12 = hour % 12 === 0 ? 12 : hour % 12;
  const again = (format: string): Piece => [strftime(moment, format)];
  switch (name) {
    case 'Y':
      return [year];
    case 'C':
      return [Math.floor(year / 100), 2];
    case 'y':
      return [year % 100, 2];
    case 'm':
      return [moment.getMonth() + 1, 2];
    case 'd':
      return [moment.getDate(), 2];
    case 'e':
      return [moment.getDate(), 2, ' '];
    case 'j':
      return [dayOfYear + 1, 3];
    case 'B':
      return [MONTHS[moment.getMonth()]!];
    case 'b':
    case 'h':
      return [MONTHS[moment.getMonth()]!.slice(0, 3)];
    case 'A':
      return [DAYS[weekday]!];
    case 'a':
      return [DAYS[weekday]!.slice(0, 3)];
    case 'u':
      return [weekday === 0 ? 7 : weekday];
    case 'w':
      return [weekday];
    case 'U':
      return [Math.floor((dayOfYear + 7 - weekday) / 7), 2];
    case 'W':
      return [Math.floor((dayOfYear + 7 - ((weekday + 6) % 7)) / 7), 2];
    case 'V':
      return [isoWeek(moment).week, 2];
    case 'G':
      return [isoWeek(moment).year];
    case 'g':
      return [isoWeek(moment).year % 100, 2];
    case 'H':
      return [hour, 2];
    case 'I':
      return [hour12, 2];
    case 'k':
      return [hour, 2, ' '];
    case 'l':
      return [hour12, 2, ' '];
    case 'p':
      return [hour < 12 ? 'AM' : 'PM'];
    case 'P':
      return [hour < 12 ? 'am' : 'pm'];
    case 'M':
      return [moment.getMinutes(), 2];
    case 'S':
      return [moment.getSeconds(), 2];
    case 'f':
      return [String(moment.getMilliseconds() * 1000).padStart(6, '0')];
    case 's':
      return [Math.floor(moment.getTime() / 1000)];
    case 'c':
      return again('%a %b %e %H:%M:%S %Y');
    case 'x':
    case 'D':
      return again('%m/%d/%y');
    case 'X':
    case 'T':
      return again('%H:%M:%S');
    case 'R':
      return again('%H:%M');
    case 'r':
      return again('%I:%M:%S %p');
    case 'F':
      return again('%Y-%m-%d');
    case 'n':
      return ['\n'];
    case 't':
      return ['\t'];
    // A time without a zone, as the reference asks for it, has none to name.
    case 'z':
    case 'Z':
      return [''];
    case '%':
      return ['%'];
    default:
      return undefined;
  }
}

/** Days since the first of January. */
function daysBetween(year: number, moment: Date): number {
  const today = Date.UTC(moment.getFullYear(), moment.getMonth(), moment.getDate());
  return Math.round((today - Date.UTC(year, 0, 1)) / DAY);
}

/** The week by ISO 8601: that of its Thursday. */
function isoWeek(moment: Date): { readonly year: number; readonly week: number } {
  const thursday = new Date(
    moment.getFullYear(),
    moment.getMonth(),
    moment.getDate() + 4 - (moment.getDay() || 7),
  );
  return {
    year: thursday.getFullYear(),
    week: Math.floor(daysBetween(thursday.getFullYear(), thursday) / 7) + 1,
  };
}
