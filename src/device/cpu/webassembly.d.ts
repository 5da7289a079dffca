/**
 * The part of WebAssembly's JavaScript interface that the CPU device uses. TypeScript has it only in its DOM
 * library, whose other names have no place in code that runs in Node.
 */
declare namespace WebAssembly {
  interface MemoryDescriptor {
    readonly initial: number;
    readonly maximum?: number;
    readonly shared?: boolean;
  }
  class Memory {
    constructor(descriptor: MemoryDescriptor);
    readonly buffer: ArrayBuffer | SharedArrayBuffer;
    /** Grows by so many pages of 64 KiB; answers with the size before. Throws RangeError if refused. */
    grow(pages: number): number;
  }
  class Module {
    constructor(bytes: BufferSource);
  }
  class Instance {
    constructor(module: Module, imports?: Record<string, Record<string, unknown>>);
    readonly exports: Readonly<Record<string, unknown>>;
  }
  class RuntimeError extends Error {}
  class CompileError extends Error {}
  type BufferSource = ArrayBufferView | ArrayBuffer;
  function compile(bytes: BufferSource): Promise<Module>;
  function instantiate(module: Module, imports?: Record<string, Record<string, unknown>>): Promise<Instance>;
  function validate(bytes: BufferSource): boolean;
}
