package steering

import "github.com/holdfast/holdfast/internal/tenure"

// Dependent is the node of a cluster of two voices that depends on the other, and so hosts nothing that moves: its right ends with the
// other's life, while the other holds by itself. It is zero where there are more voices or only one, or where an operator declared the
// other dead, or no-witness lets each go on without the other.
func (w *World) Dependent() int {
	if len(w.Config.Nodes) != 2 || w.Config.NoWitness() {
		return 0
	}
	voices := []tenure.Voice{{LNN: w.Config.Nodes[0].LNN}, {LNN: w.Config.Nodes[1].LNN}}
	dependent := tenure.Depends(voices)
	for _, v := range voices {
		if v.LNN != dependent && w.Nodes[v.LNN].Declared {
			return 0
		}
	}
	return dependent
}

// dependence is why the one that depends hosts nothing.
const dependence = "the cluster has only two voices, and its right to hold would end with the other: it hosts nothing until a third node or a witness has joined"
