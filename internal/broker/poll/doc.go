// Package poll asks a fleet's central manager over HTTPS for what it knows, and tells by a plain TCP connection whether a gateway answers.
//
// It guarantees that nothing is believed from anybody but the holder of the certificate that was linked (by its SHA-256 fingerprint, so
// that neither names nor authorities matter), that an answer is read up to its bound and no further, and that a call ends by its
// deadline, whatever the other side does. It follows no redirects, uses no proxy, and keeps no connection.
//
// A Client is safe for concurrent use. It judges nothing: package fleet reads the answers, package watch says what they mean.
package poll
