/** Options of the command. Names that one takes are read in any case: `--log-level DEBUG` is `debug`. */
import { Option as PlainOption } from 'commander';

export class Option extends PlainOption {
  /** @example new Option('--device <name>').choices(['cpu', 'webgpu']) // takes CPU too */
  override choices(values: readonly string[]): this {
    super.choices(values);
    const exact = this.parseArg;
    return this.argParser((given: string, before: unknown) => {
      const known = values.find((value) => value.toLowerCase() === given.toLowerCase());
      return exact?.call(this, known ?? given, before as never);
    });
  }
}
