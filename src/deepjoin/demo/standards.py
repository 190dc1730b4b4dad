"""Facts about currencies, languages and fixed public holidays."""

from __future__ import annotations

from deepjoin.demo.sheets import records

#: ISO 4217 code, name, digits after the decimal point.
CURRENCIES = records("""
AED|United Arab Emirates dirham|2
ALL|Albanian lek|2
ARS|Argentine peso|2
AUD|Australian dollar|2
BDT|Bangladeshi taka|2
BRL|Brazilian real|2
CAD|Canadian dollar|2
CHF|Swiss franc|2
CLP|Chilean peso|0
CNY|Chinese yuan|2
COP|Colombian peso|2
CRC|Costa Rican colón|2
CZK|Czech koruna|2
DKK|Danish krone|2
DZD|Algerian dinar|2
EGP|Egyptian pound|2
ETB|Ethiopian birr|2
EUR|Euro|2
FJD|Fijian dollar|2
GBP|Pound sterling|2
GEL|Georgian lari|2
GHS|Ghanaian cedi|2
HUF|Hungarian forint|2
IDR|Indonesian rupiah|2
INR|Indian rupee|2
IQD|Iraqi dinar|3
IRR|Iranian rial|2
ISK|Icelandic króna|0
JOD|Jordanian dinar|3
JPY|Japanese yen|0
KES|Kenyan shilling|2
KRW|South Korean won|0
KZT|Kazakhstani tenge|2
MAD|Moroccan dirham|2
MGA|Malagasy ariary|2
MNT|Mongolian tögrög|2
MXN|Mexican peso|2
MYR|Malaysian ringgit|2
NAD|Namibian dollar|2
NGN|Nigerian naira|2
NOK|Norwegian krone|2
NPR|Nepalese rupee|2
NZD|New Zealand dollar|2
PAB|Panamanian balboa|2
PEN|Peruvian sol|2
PHP|Philippine peso|2
PKR|Pakistani rupee|2
PLN|Polish złoty|2
QAR|Qatari riyal|2
RON|Romanian leu|2
RSD|Serbian dinar|2
RUB|Russian rouble|2
RWF|Rwandan franc|0
SAR|Saudi riyal|2
SEK|Swedish krona|2
SGD|Singapore dollar|2
THB|Thai baht|2
TND|Tunisian dinar|3
TRY|Turkish lira|2
TZS|Tanzanian shilling|2
UAH|Ukrainian hryvnia|2
USD|US dollar|2
UYU|Uruguayan peso|2
VND|Vietnamese đồng|0
XOF|West African CFA franc|0
ZAR|South African rand|2
""")

#: ISO 639-1 code, English name, the language's own name, family.
LANGUAGES = records("""
af|Afrikaans|Afrikaans|Indo-European
ar|Arabic|العربية|Afro-Asiatic
bn|Bengali|বাংলা|Indo-European
ca|Catalan|català|Indo-European
cs|Czech|čeština|Indo-European
cy|Welsh|Cymraeg|Indo-European
da|Danish|dansk|Indo-European
de|German|Deutsch|Indo-European
el|Greek|Ελληνικά|Indo-European
en|English|English|Indo-European
es|Spanish|español|Indo-European
et|Estonian|eesti|Uralic
eu|Basque|euskara|isolate
fa|Persian|فارسی|Indo-European
fi|Finnish|suomi|Uralic
fr|French|français|Indo-European
ga|Irish|Gaeilge|Indo-European
gl|Galician|galego|Indo-European
hi|Hindi|हिन्दी|Indo-European
hr|Croatian|hrvatski|Indo-European
hu|Hungarian|magyar|Uralic
id|Indonesian|Bahasa Indonesia|Austronesian
is|Icelandic|íslenska|Indo-European
it|Italian|italiano|Indo-European
ja|Japanese|日本語|Japonic
ka|Georgian|ქართული|Kartvelian
ko|Korean|한국어|Koreanic
lb|Luxembourgish|Lëtzebuergesch|Indo-European
lt|Lithuanian|lietuvių|Indo-European
lv|Latvian|latviešu|Indo-European
mi|Māori|te reo Māori|Austronesian
ms|Malay|Bahasa Melayu|Austronesian
mt|Maltese|Malti|Afro-Asiatic
nl|Dutch|Nederlands|Indo-European
no|Norwegian|norsk|Indo-European
pl|Polish|polski|Indo-European
pt|Portuguese|português|Indo-European
qu|Quechua|Runa Simi|Quechuan
rm|Romansh|rumantsch|Indo-European
ro|Romanian|română|Indo-European
ru|Russian|русский|Indo-European
sk|Slovak|slovenčina|Indo-European
sl|Slovene|slovenščina|Indo-European
sr|Serbian|српски|Indo-European
sv|Swedish|svenska|Indo-European
sw|Swahili|Kiswahili|Niger-Congo
ta|Tamil|தமிழ்|Dravidian
th|Thai|ไทย|Kra-Dai
tr|Turkish|Türkçe|Turkic
uk|Ukrainian|українська|Indo-European
ur|Urdu|اردو|Indo-European
vi|Vietnamese|Tiếng Việt|Austroasiatic
xh|Xhosa|isiXhosa|Niger-Congo
zh|Chinese|中文|Sino-Tibetan
zu|Zulu|isiZulu|Niger-Congo
""")

#: Country (ISO-2) and languages widely spoken there.
SPOKEN = [
    (country, language)
    for country, languages in records("""
AR|es
AU|en
AT|de
BE|nl fr de
BR|pt
CA|en fr
CN|zh
CI|fr
HR|hr
CZ|cs
DK|da
FI|fi sv
FR|fr
DE|de
GR|el
HU|hu
IN|hi en ta bn ur
IE|en ga
IT|it
JP|ja
KE|sw en
LU|lb fr de
MT|mt en
MX|es
NL|nl
NZ|en mi
NO|no
PE|es qu
PL|pl
PT|pt
SG|en zh ms ta
SK|sk
SI|sl
ZA|zu xh af en
KR|ko
ES|es ca gl eu
SE|sv
CH|de fr it rm
GB|en cy
US|en es
VN|vi
""")
    for language in languages.split()
]

#: Month and day, country (ISO-2), name; only holidays with a day of the month of their own.
HOLIDAYS = records("""
01-01|GB|New Year's Day
01-01|US|New Year's Day
01-01|DE|New Year's Day
01-01|FR|New Year's Day
01-01|JP|New Year's Day
01-06|AT|Epiphany
01-06|IT|Epiphany
01-26|AU|Australia Day
01-26|IN|Republic Day
02-06|NZ|Waitangi Day
03-06|GH|Independence Day
03-15|HU|1848 Revolution Memorial Day
03-17|IE|Saint Patrick's Day
03-21|NA|Independence Day
03-25|GR|Independence Day
03-26|BD|Independence Day
04-25|IT|Liberation Day
04-25|PT|Freedom Day
04-27|NL|King's Day
04-27|ZA|Freedom Day
05-01|DE|Labour Day
05-01|FR|Labour Day
05-01|MX|Labour Day
05-03|PL|Constitution Day
05-17|NO|Constitution Day
06-02|IT|Republic Day
06-06|SE|National Day
06-10|PT|Portugal Day
06-12|PH|Independence Day
06-19|US|Juneteenth
07-01|CA|Canada Day
07-04|US|Independence Day
07-09|AR|Independence Day
07-14|FR|Bastille Day
07-20|CO|Independence Day
07-21|BE|National Day
07-28|PE|Independence Day
08-01|CH|Swiss National Day
08-09|SG|National Day
08-14|PK|Independence Day
08-15|IN|Independence Day
08-15|KR|Liberation Day
08-17|ID|Independence Day
08-20|HU|Saint Stephen's Day
08-31|MY|Independence Day
09-02|VN|National Day
09-07|BR|Independence Day
09-16|MX|Independence Day
09-18|CL|Independence Day
10-01|CN|National Day
10-01|NG|Independence Day
10-03|DE|German Unity Day
10-12|ES|National Day
10-26|AT|National Day
10-28|CZ|Independent Czechoslovak State Day
10-29|TR|Republic Day
11-03|JP|Culture Day
11-11|PL|Independence Day
12-02|AE|National Day
12-06|FI|Independence Day
12-25|GB|Christmas Day
12-25|US|Christmas Day
12-26|GB|Boxing Day
""")

#: Planning rates for one euro, as a treasurer might round them.
BUDGET_RATES = records("""
AED|4.00
AUD|1.65
BRL|5.40
CAD|1.48
CHF|0.96
CNY|7.80
CZK|25.00
DKK|7.46
GBP|0.86
HUF|390
INR|90
JPY|160
KRW|1450
MXN|18.50
NOK|11.50
NZD|1.78
PLN|4.35
RON|4.97
SEK|11.40
SGD|1.45
THB|39
TRY|34
USD|1.08
ZAR|20.00
""")
