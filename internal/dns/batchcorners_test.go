package dns

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestBatchAnswersCornersAlike: all types, classes and operations that have a meaning, others among them, and every size of buffer around
// those that count, are answered from what is prepared as they are alone, of names that exist, do not, and are outside.
func TestBatchAnswersCornersAlike(t *testing.T) {
	v := testView()
	many := testPool("many", false, 100)
	many.MaxAnswers = maxPicked
	v.Zones = append(v.Zones, Zone{Name: "many.example.com", Service: "ssip.example.com", Pools: []Pool{many}})
	alone, b := twins(t, v, RateLimit{Off: true})
	for _, name := range []string{"plain.example.org.", "missing.plain.example.org.", "ssip.example.com.", "elsewhere.example.", "bucket.cluster.example.com."} {
		plain := asked{name: name, qtype: tA, rd: true}.pack(t)
		vary := func(offset, most int) {
			message := bytes.Clone(plain)
			for value := 0; value < most; value = next(value) {
				binary.BigEndian.PutUint16(message[offset:], uint16(value))
				agreeOn(t, alone, b, message, testNow)
			}
		}
		vary(len(plain)-4, 1<<16) // types
		vary(len(plain)-2, 1<<16) // classes
		vary(2, 1<<16)            // operations and flags
		for section := 4; section < headerSize; section += 2 {
			vary(section, 4) // counts
		}
	}
	for _, name := range []string{"many.example.com.", "cluster.example.com.", "x.plain.example.org."} {
		message := asked{name: name, qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}}.pack(t)
		class := len(message) - 8 - 12 // the OPT record: root, type, and then this; the option is behind it
		for size := 0; size < 1300; size += 3 {
			binary.BigEndian.PutUint16(message[class:], uint16(size))
			agreeOn(t, alone, b, message, testNow)
		}
	}
	keepalive := asked{name: "cluster.example.com.", qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionKeepalive}}}.pack(t)
	agreeOn(t, alone, b, keepalive, testNow)
}
