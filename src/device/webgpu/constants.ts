/** WebGPU's flag values. Node has no `GPUBufferUsage` global, and a browser's says the same numbers. */
export const USAGE = {
  MAP_READ: 1,
  MAP_WRITE: 2,
  COPY_SRC: 4,
  COPY_DST: 8,
  UNIFORM: 64,
  STORAGE: 128,
} as const;

export const MAP_MODE_READ = 1;
export const MAP_MODE_WRITE = 2;
export const STAGE_COMPUTE = 4;
