/** The syntax tree of a template, as Jinja has it. Lines are counted from 1. */

export type Expression =
  | { readonly type: 'Const'; readonly value: null | boolean | bigint | number | string }
  | { readonly type: 'Name'; readonly name: string }
  | { readonly type: 'Tuple' | 'List'; readonly items: readonly Expression[] }
  | { readonly type: 'Dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly type: 'Getattr'; readonly object: Expression; readonly name: string }
  | { readonly type: 'Getitem'; readonly object: Expression; readonly key: Expression }
  | {
      readonly type: 'Slice';
      readonly start: Expression | null;
      readonly stop: Expression | null;
      readonly step: Expression | null;
    }
  | { readonly type: 'Call'; readonly callee: Expression; readonly args: CallArguments }
  | FilterExpression
  | {
      readonly type: 'Test';
      readonly operand: Expression;
      readonly name: string;
      readonly args: CallArguments;
      readonly line: number;
    }
  | { readonly type: 'Not'; readonly operand: Expression }
  | { readonly type: 'And' | 'Or'; readonly left: Expression; readonly right: Expression }
  | { readonly type: 'Unary'; readonly operator: '-' | '+'; readonly operand: Expression }
  | {
      readonly type: 'Binary';
      readonly operator: '+' | '-' | '*' | '/' | '//' | '%' | '**';
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly type: 'Concat'; readonly parts: readonly Expression[] }
  | {
      readonly type: 'Compare';
      readonly first: Expression;
      readonly rest: readonly { readonly operator: CompareOperator; readonly operand: Expression }[];
    }
  | {
      readonly type: 'Conditional';
      readonly test: Expression;
      readonly yes: Expression;
      readonly no: Expression | null;
    };

export interface FilterExpression {
  readonly type: 'Filter';
  /** Null in a filter block: what the block holds. */
  readonly operand: Expression | null;
  readonly name: string;
  readonly args: CallArguments;
  readonly line: number;
}

export type CompareOperator = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';

export interface CallArguments {
  readonly positional: readonly Expression[];
  readonly keywords: readonly (readonly [string, Expression])[];
  /** `*args` */
  readonly rest: Expression | null;
  /** `**kwargs` */
  readonly restKeywords: Expression | null;
}

/** What a value may be assigned to. */
export type Target =
  | { readonly type: 'Name'; readonly name: string }
  | { readonly type: 'NamespaceAttribute'; readonly name: string; readonly attribute: string }
  | { readonly type: 'Tuple'; readonly items: readonly Target[] };

/** Parameters of a macro or of a call block; the last ones may have defaults. */
export interface Signature {
  readonly parameters: readonly string[];
  readonly defaults: readonly Expression[];
}

export type Statement =
  | { readonly type: 'Text'; readonly text: string }
  | { readonly type: 'Output'; readonly value: Expression }
  | {
      readonly type: 'For';
      readonly target: Target;
      readonly iterable: Expression;
      readonly test: Expression | null;
      readonly recursive: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | {
      readonly type: 'If';
      readonly branches: readonly { readonly test: Expression; readonly body: readonly Statement[] }[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly type: 'Set'; readonly target: Target; readonly value: Expression }
  | {
      readonly type: 'SetBlock';
      readonly target: Target;
      readonly filter: FilterExpression | null;
      readonly body: readonly Statement[];
    }
  | { readonly type: 'FilterBlock'; readonly filter: FilterExpression; readonly body: readonly Statement[] }
  | {
      readonly type: 'With';
      readonly targets: readonly (readonly [Target, Expression])[];
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'Macro';
      readonly name: string;
      readonly signature: Signature;
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'CallBlock';
      readonly call: Expression & { readonly type: 'Call' };
      readonly signature: Signature;
      readonly body: readonly Statement[];
    }
  /** A part of the template whose variables are its own: `{% generation %}`, `{% block %}`. */
  | { readonly type: 'Scope'; readonly isolated: boolean; readonly body: readonly Statement[] }
  | { readonly type: 'Autoescape'; readonly on: Expression; readonly body: readonly Statement[] }
  /** It loads another template, of which there is none. */
  | { readonly type: 'Load'; readonly what: string; readonly values: readonly Expression[] }
  | { readonly type: 'Break' | 'Continue' };

export type StatementOf<T extends Statement['type']> = Extract<Statement, { readonly type: T }>;
