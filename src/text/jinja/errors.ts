/** The exceptions of Python that templates meet, and Jinja's own. */
export type PythonErrorType =
  | 'TypeError'
  | 'ValueError'
  | 'KeyError'
  | 'IndexError'
  | 'AttributeError'
  | 'OverflowError'
  | 'ZeroDivisionError'
  | 'AssertionError'
  | 'RuntimeError'
  | 'MemoryError'
  | 'UnicodeError'
  | 'UndefinedError'
  | 'SecurityError'
  | 'FilterArgumentError';

/** What would be an exception in Python: it ends the rendering unless Jinja itself catches it. */
export class PythonError extends Error {
  override readonly name = 'PythonError';
  readonly type: PythonErrorType;

  constructor(type: PythonErrorType, message: string) {
    super(message);
    this.type = type;
  }
}

/** Whether Python's `except (types)` would catch an error. */
export function isPythonError(error: unknown, ...types: readonly PythonErrorType[]): error is PythonError {
  return error instanceof PythonError && types.includes(error.type);
}

export function typeError(message: string): PythonError {
  return new PythonError('TypeError', message);
}

export function valueError(message: string): PythonError {
  return new PythonError('ValueError', message);
}

/** A template that does not compile. */
export class TemplateSyntaxError extends Error {
  override readonly name = 'TemplateSyntaxError';

  /** @param line counted from 1 */
  constructor(message: string, line: number) {
    super(`${message} (line ${line})`);
  }
}

/** Thrown by `raise_exception(message)` in a template. */
export class TemplateRaised extends Error {
  override readonly name = 'TemplateRaised';
}
