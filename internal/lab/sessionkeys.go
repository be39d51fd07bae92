package lab

import (
	"fmt"
	"os"
	"strings"
)

// sshKey is a key pair on disk, as ssh-keygen(1) writes it: the private key in the file, the public one beside it with ".pub".
type sshKey struct {
	file   string
	public string // in the form of authorized_keys(5)
}

// newSSHKey makes a key pair in a file that is not there yet.
func newSSHKey(file, comment string) (sshKey, error) {
	if err := runTool("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", file); err != nil {
		return sshKey{}, fmt.Errorf("making the key %s: %w", file, err)
	}
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		return sshKey{}, fmt.Errorf("making the key %s: %w", file, err)
	}
	return sshKey{file: file, public: strings.TrimSpace(string(public))}, nil
}
