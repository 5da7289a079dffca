/** The functions between products: of MLPs, of gates, of experts. */

export const ACTIVATIONS = ['silu', 'gelu', 'gelu-tanh', 'relu', 'relu2'] as const;
export type Activation = (typeof ACTIVATIONS)[number];

/**
 * `quick-gelu` is `x / (1 + e^-1.702x)` (CLIP).
 *
 * `xielu` (Huang and Schlag, arXiv:2411.13010) has numbers of its own: `[alphaP, alphaN, beta, eps]`. Above 0 it is
 * `alphaP · x² + beta · x`, else `(e^min(x, eps) − 1 − x) · alphaN + beta · x`.
 */
export const UNGATED_ACTIVATIONS = [...ACTIVATIONS, 'xielu', 'quick-gelu'] as const;
export type UngatedActivation = (typeof UNGATED_ACTIVATIONS)[number];

export const GATE_ACTIVATIONS = ['sigmoid', 'silu', 'gelu-tanh'] as const;
export type GateActivation = (typeof GATE_ACTIVATIONS)[number];

/**
 * The gated activation of gpt-oss: `(clamp(up, ±limit) + 1) · g · σ(alpha · g)` with `g = min(gate, limit)`.
 */
export interface ClampedSwiglu {
  readonly alpha: number;
  readonly limit: number;
}

/** What an expert makes of gate and up: `act(gate) · up`, or the clamped one. */
export type ExpertActivation = Activation | ClampedSwiglu;
