/**
 * Whether a variable of the environment says yes: 1, true, yes or on, in any case.
 *
 * @example isOn(process.env.HF_HUB_OFFLINE)
 */
export function isOn(text: string | undefined): boolean {
  return /^(1|true|yes|on)$/i.test(text?.trim() ?? '');
}
