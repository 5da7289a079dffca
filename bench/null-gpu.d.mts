export interface NullGpuOptions {
  readonly toggles?: readonly string[];
  readonly onDevice?: (device: GPUDevice) => void;
  readonly onText?: (wgsl: string) => void;
}

export function createNullGpu(options?: NullGpuOptions): GPU;
