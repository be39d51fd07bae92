package cluster

import (
	"fmt"
	"strings"
)

// didYouMean returns "; did you mean X?" when one of the names is near to what was written, and "" otherwise.
func didYouMean(written string, names []string) string {
	best, bestDistance := "", 1+max(2, len(written)/3)
	for _, name := range names {
		if d := distance(strings.ToLower(written), strings.ToLower(name), bestDistance); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best == "" || bestDistance >= len(best) {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of characters to insert, delete or replace to get from a to b; limit when it is that or more.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	previous := make([]int, len(b)+1)
	current := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(replace, previous[j]+1, current[j-1]+1)
		}
		previous, current = current, previous
	}
	return min(previous[len(b)], limit)
}

// listed joins names for a message: "a, b or c".
func listed(names []string, last string) string {
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + last + " " + names[len(names)-1]
}

// counted writes a number with the word that fits it.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
