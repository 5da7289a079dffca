/** The completion routes: `/v1/chat/completions` and `/v1/completions`. */
export type RouteKind = 'chat' | 'text';
