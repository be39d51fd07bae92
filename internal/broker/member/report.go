package member

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/pin"
)

// beatTimeout is within which a beat is answered, or not at all.
const beatTimeout = 3 * time.Second

// report sends beats until the context ends, whatever becomes of them: a central manager that is down is told as soon as it is back.
func (s *Station) report(ctx context.Context) {
	web := s.reporter()
	var drawn [16]byte
	_, _ = rand.Read(drawn[:]) // never fails
	process := hex.EncodeToString(drawn[:])
	interval, said := DefaultInterval, "."
	misses := 0
	for sequence := uint64(1); ; sequence++ {
		told, err := s.sendBeat(ctx, web, Beat{Key: s.options.Key, Process: process, Sequence: sequence, Description: s.options.Itself, Health: s.options.Health()})
		if ctx.Err() != nil {
			return
		}
		now := ""
		if err != nil {
			now = err.Error()
			misses++
		} else {
			interval, misses = told, 0
		}
		if now != said {
			said = now
			if err != nil {
				s.options.Logger.Warn("the central manager does not take this gateway's reports; sessions go on", "central_manager", s.options.Central.Address, "error", err)
			} else {
				s.options.Logger.Info("the central manager takes this gateway's reports", "central_manager", s.options.Central.Address, "interval", interval)
			}
		}
		pause := time.NewTimer(next(interval, misses))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-s.hurry:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// next is how long to wait for the next beat: the interval, and less after the first misses, so that a central manager that was only restarted knows all
// again soon. No two members keep step.
func next(interval time.Duration, misses int) time.Duration {
	wait := interval
	if misses > 0 && misses <= 3 {
		wait = interval >> (4 - misses)
	}
	off, err := rand.Int(rand.Reader, big.NewInt(int64(wait)/10+1))
	if err != nil {
		return wait
	}
	return wait - time.Duration(off.Int64())
}

func (s *Station) reporter() *http.Client {
	return &http.Client{
		Timeout: beatTimeout,
		Transport: &http.Transport{
			// The transport lets a connection go on being made after the request that wanted it has ended. Against a black hole these would pile up.
			DialContext:         (&net.Dialer{Timeout: beatTimeout}).DialContext,
			TLSHandshakeTimeout: beatTimeout, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			TLSClientConfig: pin.Client(s.options.Central.Fingerprint, &s.options.Certificate),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sendBeat reports once, and returns when to do so again.
func (s *Station) sendBeat(ctx context.Context, web *http.Client, b Beat) (time.Duration, error) {
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("this gateway has nothing to report that makes sense: %w", err)
	}
	where := "https://" + s.options.Central.Address + BeatPath
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, where, bytes.NewReader(written(b)))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := web.Do(request)
	if err != nil {
		if errors.Is(err, pin.ErrUntrusted) {
			return 0, fmt.Errorf("%w (fleet.fingerprint); if its certificate was made anew, write the new one there", pin.ErrUntrusted)
		}
		text := err.Error()
		if _, after, found := strings.Cut(text, where+"\": "); found {
			text = after // the method and the address stand before it once more
		}
		var network *net.OpError // it names addresses and ports, which are others each time
		if errors.As(err, &network) {
			text = network.Op + ": " + network.Err.Error()
		}
		return 0, errors.New(text)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHeader))
	if err != nil {
		return 0, fmt.Errorf("reading what it says: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		if text := readComplaint(body); text != "" {
			return 0, errors.New(text)
		}
		return 0, fmt.Errorf("it answers with status %d", response.StatusCode)
	}
	return readHeard(body)
}

func readHeard(body []byte) (time.Duration, error) {
	var h heard
	if err := json.Unmarshal(body, &h); err != nil {
		return 0, fmt.Errorf("what it says cannot be read: %s", plain(err))
	}
	if h.IntervalMS < LeastInterval.Milliseconds() || h.IntervalMS > MostInterval.Milliseconds() {
		return 0, fmt.Errorf("it asks for a report every %d ms, and %d to %d can be had", h.IntervalMS, LeastInterval.Milliseconds(), MostInterval.Milliseconds())
	}
	return time.Duration(h.IntervalMS) * time.Millisecond, nil
}
