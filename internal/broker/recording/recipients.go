package recording

import (
	"fmt"
	"os"

	"filippo.io/age"
)

// ParseRecipients reads the public keys that recordings are encrypted to, as age-keygen prints them (age1...).
func ParseRecipients(texts []string) ([]age.Recipient, error) {
	var recipients []age.Recipient
	for _, text := range texts {
		r, err := age.ParseX25519Recipient(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a recipient: write it as age-keygen prints it (age1...)", text)
		}
		recipients = append(recipients, r)
	}
	return recipients, nil
}

// ReadIdentities reads files of private keys by which encrypted recordings are read, as age-keygen writes them.
func ReadIdentities(files []string) ([]age.Identity, error) {
	var identities []age.Identity
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading identities: %w", err)
		}
		found, err := age.ParseIdentities(file)
		_ = file.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s is not a file of identities as age-keygen writes it", name)
		}
		identities = append(identities, found...)
	}
	return identities, nil
}
