package recording

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"
)

// Options say where and how recordings are kept.
type Options struct {
	// Directory holds a folder for each day (UTC), and in it the recordings of that day and their index. It is made if it is not there.
	Directory string
	// Recipients, if any, encrypt all recordings from now on; only who has one of their identities can read them, not the gateway.
	Recipients []age.Recipient
	// MinFree is the free space in bytes below which no new recording begins. Default 1 GiB.
	MinFree uint64
	// SyncEvery is how often a growing recording is synced to the disk: what a power cut may take. Default 5 s.
	SyncEvery time.Duration
	// Free returns the free bytes of the directory's file system. Default: what the kernel says.
	Free func(directory string) (uint64, error)
}

// Store is a directory of recordings.
type Store struct {
	options Options
	index   sync.Mutex // one line at a time
}

// NewStore opens a directory of recordings.
func NewStore(options Options) (*Store, error) {
	if options.MinFree == 0 {
		options.MinFree = 1 << 30
	}
	if options.SyncEvery == 0 {
		options.SyncEvery = 5 * time.Second
	}
	if options.Free == nil {
		options.Free = freeBytes
	}
	if err := os.MkdirAll(options.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of recordings: %w", err)
	}
	return &Store{options: options}, nil
}

// OpenStore opens a directory of recordings that is there, to read them.
func OpenStore(directory string) (*Store, error) {
	if _, err := os.Stat(directory); err != nil {
		return nil, fmt.Errorf("opening the directory of recordings: %w; name the gateway's with --dir", err)
	}
	return &Store{options: Options{Directory: directory}}, nil
}

func freeBytes(directory string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(directory, &stat); err != nil {
		return 0, err
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// ErrDiskFull is the error of a recording that is not begun because the space is kept for those that are running.
var ErrDiskFull = errors.New("the disk for recordings is nearly full")

// Room tells whether a new recording may begin.
func (s *Store) Room() error {
	free, err := s.options.Free(s.options.Directory)
	if err != nil {
		return fmt.Errorf("asking for the free space of %s: %w", s.options.Directory, err)
	}
	if free < s.options.MinFree {
		return fmt.Errorf("%w: %d MiB are free in %s, and below %d MiB no session begins, so that those under way can be recorded to their end. Free space there, or use another gateway",
			ErrDiskFull, free>>20, s.options.Directory, s.options.MinFree>>20)
	}
	return nil
}

const (
	plainSuffix  = ".cast"
	sealedSuffix = ".cast.age"
	dayForm      = "2006-01-02"
	// maxID bounds the ID of a recording, which becomes the name of a file.
	maxID = 100
)

// NewSessionID makes the ID of a session from when it began and from eight random bytes.
func NewSessionID(began time.Time, random [8]byte) string {
	return began.UTC().Format("20060102T150405Z") + "-" + fmt.Sprintf("%x", random)
}

// folderOf returns the folder of the day to which a recording belongs by its ID, and false if it is none of ours.
func folderOf(id string) (string, bool) {
	stamp, _, found := strings.Cut(id, "-")
	began, err := time.Parse("20060102T150405Z", stamp)
	if !found || err != nil || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r == 'T' || r == 'Z' || r == '-' || r == '.')
	}) {
		return "", false
	}
	return began.Format(dayForm), true
}

// Begin starts a recording. Its ID begins with one that NewSessionID made. It fails with ErrDiskFull where there is no room, and with ErrQuota where its session
// has had its part.
func (s *Store) Begin(header Header, quota *Quota) (*Writer, error) {
	if quota.over() {
		return nil, ErrQuota
	}
	if err := s.Room(); err != nil {
		return nil, err
	}
	day, ok := folderOf(header.Session.ID)
	if !ok {
		return nil, fmt.Errorf("beginning a recording: %q is not the ID of one", header.Session.ID)
	}
	folder := filepath.Join(s.options.Directory, day)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("beginning a recording: %w", err)
	}
	suffix := plainSuffix
	if len(s.options.Recipients) > 0 {
		suffix = sealedSuffix
	}
	name := filepath.Join(day, header.Session.ID+suffix)
	opened, err := os.OpenFile(filepath.Join(s.options.Directory, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("beginning a recording: %w", err)
	}
	header.Version = 2
	quota.take(ofFile)
	w := &Writer{name: name, done: s.entered, file: opened, quota: quota, recipients: s.options.Recipients, about: header.Session, syncEvery: s.options.SyncEvery, tails: map[Kind][]byte{}}
	if err := w.begin(header); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the recording %s: %w", name, err), opened.Close())
	}
	return w, nil
}

// entered puts a recording that has ended into its day's index.
func (s *Store) entered(w *Writer, length time.Duration) error {
	s.index.Lock()
	defer s.index.Unlock()
	state := Whole
	if w.err != nil {
		state = Unended
	}
	return appendIndex(filepath.Join(s.options.Directory, filepath.Dir(w.name)), Entry{
		File: filepath.Base(w.name), About: w.about, Seconds: length.Seconds(), Bytes: w.size, State: state,
	})
}

// Find opens the recording with an ID, or with the beginning of one that no other has.
func (s *Store) Find(id string, identities []age.Identity) (*Reader, error) {
	entries, err := s.List(2, func(e Entry) bool { return strings.HasPrefix(e.About.ID, id) })
	if err != nil {
		return nil, err
	}
	switch {
	case id == "" || len(entries) == 0:
		return nil, fmt.Errorf("there is no recording %q in %s; list those that are there with holdfast sessions list", id, s.options.Directory)
	case len(entries) > 1 && entries[0].About.ID != id:
		return nil, fmt.Errorf("more than one recording begins with %q, %s among them: write more of the ID", id, entries[0].About.ID)
	}
	return Open(s.path(entries[0]), identities)
}

func (s *Store) path(e Entry) string {
	day, _ := folderOf(e.About.ID)
	return filepath.Join(s.options.Directory, day, e.File)
}
