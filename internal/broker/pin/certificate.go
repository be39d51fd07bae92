package pin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// validity is how long a certificate says that it is valid. It is known by its fingerprint, which counts until an operator takes it away.
const validity = 30 * 365 * 24 * time.Hour

// maxFile bounds a file of keys and certificates, in bytes.
const maxFile = 64 << 10

// Make makes a key and a certificate for it, in one file of PEM that only its owner reads. A file that is there stays.
func Make(file, name string, now time.Time) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"holdfast.invalid"},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	var text bytes.Buffer
	for _, block := range []pem.Block{{Type: "PRIVATE KEY", Bytes: private}, {Type: "CERTIFICATE", Bytes: certificate}} {
		if err := pem.Encode(&text, &block); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return wholefile.Replace(file, text.Bytes())
}

// Load reads a certificate and its key. Both may be in one file. The file of the key must be its owner's alone.
func Load(certificate, key string) (tls.Certificate, Fingerprint, error) {
	var texts [2][]byte
	for i, name := range []string{certificate, key} {
		info, err := os.Stat(name)
		if err != nil {
			return tls.Certificate{}, Fingerprint{}, err
		}
		if name == key && info.Mode().Perm()&0o077 != 0 {
			return tls.Certificate{}, Fingerprint{}, fmt.Errorf("the private key %s may be read by others; whoever has read it may have it still. Make a new one, or chmod 600 %s", name, name)
		}
		if info.Size() > maxFile {
			return tls.Certificate{}, Fingerprint{}, fmt.Errorf("%s has %d bytes, at most %d are read", name, info.Size(), maxFile)
		}
		if texts[i], err = os.ReadFile(name); err != nil {
			return tls.Certificate{}, Fingerprint{}, err
		}
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return tls.Certificate{}, Fingerprint{}, fmt.Errorf("%s and %s are not a certificate and its key in PEM: %w", certificate, key, err)
	}
	return pair, sha256.Sum256(pair.Certificate[0]), nil
}
