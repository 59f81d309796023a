package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1ac "k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// SecretName is the name of the Secret with the certificate, in the namespace of the manager.
const SecretName = "webhook-certificate.fixpoint.dev"

// fieldManager applies the Secret, and the CA bundle of the CustomResourceDefinitions.
const fieldManager = "fixpoint-webhook"

const (
	// retryDelay is the delay after a write that failed.
	retryDelay = 5 * time.Second
	// maxWait is the longest time between two decisions, in case the clock is set.
	maxWait = time.Hour
)

// Options configure a [Keeper].
type Options struct {
	// Config is the client configuration of the API server. Writes through it must not depend on leader election.
	Config *rest.Config
	// Namespace is that of the Secret and of the Service, and Service the name of the Service.
	Namespace, Service string
	// Provided says that the certificate and the CA bundles are provided by cert-manager or the administrator. The
	// keeper then only observes the CustomResourceDefinitions.
	Provided bool
	// Definitions are the names of the CustomResourceDefinitions whose CA bundle is kept. Cached are those of them whose
	// objects the manager reads.
	Definitions, Cached []string
	// Current is the version of the API that is stored.
	Current string

	Logger logr.Logger
	// Clock is for tests. The default is the system clock.
	Clock clock.WithTicker
}

// Keeper keeps the certificate of the webhook, and the CA bundle of the CustomResourceDefinitions.
type Keeper struct {
	o           Options
	names       []string
	secrets     coreclient.SecretInterface
	definitions apiextensionsclient.CustomResourceDefinitionInterface

	// serving is the certificate that the webhook serves.
	serving atomic.Pointer[tls.Certificate]

	mu     sync.Mutex
	secret *corev1.Secret
	// secretRead says that the Secret was read, or found to be missing.
	secretRead bool
	// observed are the CustomResourceDefinitions that were read, or found to be missing.
	observed map[string]observed
	changed  chan struct{}
	// definitionChanged receives after a change of a CustomResourceDefinition.
	definitionChanged chan struct{}
}

// observed is what matters of a CustomResourceDefinition.
type observed struct {
	bundle []byte
	// older says that objects may be stored in an older version.
	older bool
	// webhook says that it is converted by this webhook, or by one with a URL.
	webhook bool
}

// New returns a keeper.
func New(o Options) (*Keeper, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if !o.Provided && (o.Namespace == "" || o.Service == "") {
		return nil, errors.New("the webhook needs the namespace and the name of its Service: set --pod-namespace and --webhook-service, or mount a certificate and set --webhook-cert-path")
	}
	core, err := coreclient.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for Secrets: %w", err)
	}
	extensions, err := apiextensionsclient.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for CustomResourceDefinitions: %w", err)
	}
	host := o.Service + "." + o.Namespace + ".svc"
	return &Keeper{
		o: o, names: []string{host, host + ".cluster.local"},
		secrets: core.Secrets(o.Namespace), definitions: extensions.CustomResourceDefinitions(),
		observed: map[string]observed{}, changed: make(chan struct{}, 1), definitionChanged: make(chan struct{}, 1),
	}, nil
}

// GetCertificate returns the certificate to serve, for a [tls.Config].
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := k.serving.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("the certificate of the webhook has not been issued yet")
}

// Ready is a readiness check: the webhook has a certificate.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.GetCertificate(nil)
	return err
}

// StoresOlder reports whether objects that the manager reads may be stored in an older version, so that reading them needs
// the webhook.
func (k *Keeper) StoresOlder() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.o.Cached, func(name string) bool { return k.observed[name].older })
}

// DefinitionChanged receives after a change of a CustomResourceDefinition, or of several.
func (k *Keeper) DefinitionChanged() <-chan struct{} { return k.definitionChanged }

// Run keeps the certificate until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	if !k.o.Provided {
		watches.Go(func() { k.watchSecret(ctx) })
	}
	for _, name := range k.o.Definitions {
		watches.Go(func() { k.watchDefinition(ctx, name) })
	}
	for {
		wait := k.step(ctx)
		timer := k.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.changed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// step does what is due, and returns how long to wait for a change before the next step.
func (k *Keeper) step(ctx context.Context) time.Duration {
	secret, read := k.current()
	if !read {
		return maxWait // the watch reports it
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	now := k.o.Clock.Now()
	present := parse(data)
	do, again := decide(present, k.names, now)
	if do == promote && !k.isPublished(present.next) {
		do, again = keep, now.Add(retryDelay)
	}
	if do != keep {
		if err := k.write(ctx, do, present, secret, now); err != nil {
			k.o.Logger.Error(err, "Failed to write the certificate of the webhook", "namespace", k.o.Namespace, "secret", SecretName)
			return retryDelay
		}
		return maxWait // the watch reports the new Secret
	}
	k.serve(present.serving)
	if err := k.inject(ctx, present.bundle); err != nil {
		k.o.Logger.Error(err, "Failed to set the CA bundle of a CustomResourceDefinition")
		return retryDelay
	}
	return min(again.Sub(now), maxWait)
}

// isPublished reports whether the API servers trust a certificate, as far as the CustomResourceDefinitions say. One that is
// not read yet, as after a start, may not have it.
func (k *Keeper) isPublished(p *pair) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range k.o.Definitions {
		definition, read := k.observed[name]
		if !read || definition.webhook && !trusts(definition.bundle, p) {
			return false
		}
	}
	return true
}

func (k *Keeper) current() (*corev1.Secret, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secret, k.secretRead
}

func (k *Keeper) serve(p *pair) {
	if current := k.serving.Load(); current != nil && bytes.Equal(current.Leaf.Raw, p.leaf.Raw) {
		return
	}
	certificate, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return // it was parsed before
	}
	k.serving.Store(&certificate)
	k.o.Logger.Info("Serving a certificate of the webhook", "notAfter", p.leaf.NotAfter)
}

// write performs an action on the Secret as it was read. Another replica may have written since: its Secret is
// observed then.
func (k *Keeper) write(ctx context.Context, do action, present state, secret *corev1.Secret, now time.Time) error {
	next, err := perform(do, present, k.names, now)
	if err != nil {
		return err
	}
	desired := corev1ac.Secret(SecretName, k.o.Namespace).WithType(corev1.SecretTypeOpaque).WithData(next.data())
	// An object that exists never has the resourceVersion 1, so that nothing is replaced that another replica created.
	desired.WithResourceVersion("1")
	if secret != nil {
		desired.WithUID(secret.UID).WithResourceVersion(secret.ResourceVersion)
	}
	_, err = k.secrets.Apply(ctx, desired, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("applying Secret %s/%s: %w", k.o.Namespace, SecretName, err)
	}
	k.o.Logger.Info("Issued a certificate of the webhook", "action", do)
	return nil
}

// inject sets the CA bundle of the CustomResourceDefinitions that have another one.
func (k *Keeper) inject(ctx context.Context, bundle []byte) error {
	var failures []error
	for _, name := range k.o.Definitions {
		k.mu.Lock()
		definition := k.observed[name]
		k.mu.Unlock()
		if !definition.webhook || bytes.Equal(definition.bundle, bundle) {
			continue
		}
		desired := apiextensionsv1ac.CustomResourceDefinition(name).WithSpec(apiextensionsv1ac.CustomResourceDefinitionSpec().
			WithConversion(apiextensionsv1ac.CustomResourceConversion().
				WithWebhook(apiextensionsv1ac.WebhookConversion().
					WithClientConfig(apiextensionsv1ac.WebhookClientConfig().WithCABundle(bundle...)))))
		if _, err := k.definitions.Apply(ctx, desired, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			failures = append(failures, fmt.Errorf("applying CustomResourceDefinition %s: %w", name, err))
			continue
		}
		k.o.Logger.Info("Set the CA bundle of a CustomResourceDefinition", "definition", name)
	}
	return errors.Join(failures...)
}

// watchSecret observes the Secret.
func (k *Keeper) watchSecret(ctx context.Context) {
	observe(ctx, SecretName, &corev1.Secret{}, k.secrets.List, k.secrets.Watch, func(secret *corev1.Secret) {
		k.mu.Lock()
		k.secret, k.secretRead = secret, true
		k.mu.Unlock()
		signal(k.changed)
	}, func() {
		k.mu.Lock()
		k.secretRead = true
		k.mu.Unlock()
		signal(k.changed)
	})
}

// watchDefinition observes a CustomResourceDefinition.
func (k *Keeper) watchDefinition(ctx context.Context, name string) {
	observe(ctx, name, &apiextensionsv1.CustomResourceDefinition{}, k.definitions.List, k.definitions.Watch, func(definition *apiextensionsv1.CustomResourceDefinition) {
		k.mu.Lock()
		k.observed[name] = observed{}
		if definition != nil {
			k.observed[name] = k.o.observationOf(definition)
		}
		k.mu.Unlock()
		signal(k.changed)
		signal(k.definitionChanged)
	}, func() {
		k.mu.Lock()
		if _, exists := k.observed[name]; !exists {
			k.observed[name] = observed{}
		}
		k.mu.Unlock()
		signal(k.changed)
	})
}

// observationOf leaves the webhook of another Service alone: another manager keeps its CA bundle.
func (o Options) observationOf(definition *apiextensionsv1.CustomResourceDefinition) observed {
	seen := observed{older: slices.ContainsFunc(definition.Status.StoredVersions, func(v string) bool { return v != o.Current })}
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig != nil {
		service := conversion.Webhook.ClientConfig.Service
		seen.webhook = service == nil || service.Namespace == o.Namespace && service.Name == o.Service
		seen.bundle = conversion.Webhook.ClientConfig.CABundle
	}
	return seen
}

func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// observe calls changed with each version of one object, and with nil after it was deleted; and synced once, when it is
// known whether the object exists.
func observe[T runtime.Object, L runtime.Object](ctx context.Context, name string, empty T,
	list func(context.Context, metav1.ListOptions) (L, error), watches func(context.Context, metav1.ListOptions) (watch.Interface, error), changed func(T), synced func()) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	var none T
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = selector
				return list(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = selector
				return watches(ctx, options)
			},
		},
		ObjectType: empty,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, _ bool) {
				if live, ok := object.(T); ok {
					changed(live)
				}
			},
			UpdateFunc: func(_, object any) {
				if live, ok := object.(T); ok {
					changed(live)
				}
			},
			DeleteFunc: func(any) { changed(none) },
		},
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		synced()
	}
}
