const MONTHS = 'January February March April May June July August September October November December'.split(
  ' ',
);
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');

/** `moment.strftime(format)` in the C locale and the local time zone; unknown directives stay as they are. */
export function strftime(moment: Date, format: string): string {
  const pad = (value: number, width = 2, fill = '0'): string => String(value).padStart(width, fill);
  const hour12 = moment.getHours() % 12 === 0 ? 12 : moment.getHours() % 12;
  const startOfYear = Date.UTC(moment.getFullYear(), 0, 1);
  const today = Date.UTC(moment.getFullYear(), moment.getMonth(), moment.getDate());
  const directive = (name: string): string | undefined => {
    switch (name) {
      case 'Y':
        return String(moment.getFullYear());
      case 'y':
        return pad(moment.getFullYear() % 100);
      case 'm':
        return pad(moment.getMonth() + 1);
      case 'd':
        return pad(moment.getDate());
      case 'e':
        return pad(moment.getDate(), 2, ' ');
      case 'j':
        return pad(Math.round((today - startOfYear) / 86_400_000) + 1, 3);
      case 'B':
        return MONTHS[moment.getMonth()]!;
      case 'b':
      case 'h':
        return MONTHS[moment.getMonth()]!.slice(0, 3);
      case 'A':
        return DAYS[moment.getDay()]!;
      case 'a':
        return DAYS[moment.getDay()]!.slice(0, 3);
      case 'H':
        return pad(moment.getHours());
      case 'I':
        return pad(hour12);
      case 'p':
        return moment.getHours() < 12 ? 'AM' : 'PM';
      case 'M':
        return pad(moment.getMinutes());
      case 'S':
        return pad(moment.getSeconds());
      case 'F':
        return strftime(moment, '%Y-%m-%d');
      case 'T':
        return strftime(moment, '%H:%M:%S');
      case 'R':
        return strftime(moment, '%H:%M');
      case 'D':
        return strftime(moment, '%m/%d/%y');
      case '%':
        return '%';
      default:
        return undefined;
    }
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, minus: string, name: string) => {
    const text = directive(name);
    if (text === undefined) return whole;
    return minus === '-' ? text.replace(/^[0 ]+(?=.)/, '') : text;
  });
}
