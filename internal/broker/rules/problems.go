package rules

import "github.com/holdfast/holdfast/internal/problem"

// What can be wrong with rules that are each right in themselves. Their subject is the rule.
var (
	Broken = problem.Define(problem.Kind{
		Code: "broker.rule-broken", Severity: problem.Warning,
		Meaning: "A rule names a gateway, a fleet or a network that is not there, or shares a subnet with another one.",
		Remedy:  "Correct or remove the rule, as the detail says: holdfast broker rules.",
	})
	Contested = problem.Define(problem.Kind{
		Code: "broker.rule-contested", Severity: problem.Warning,
		Meaning: "A rule was changed on several brokers that did not know of each other; the later change counts.",
		Remedy:  "Look at what lost, and set the rule once more as it should be.",
	})
	Unmerged = problem.Define(problem.Kind{
		Code: "broker.rules-not-merged", Severity: problem.Error,
		Meaning: "The rules of another broker could not be merged with those of this one, so the two go on with different ones.",
		Remedy:  "The detail says which bound or which fault stands in the way; remove what is not needed, or upgrade the older broker.",
	})
)
